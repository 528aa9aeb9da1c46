#include "router/text/output_assembler.h"

#include <utility>

namespace stagecoach::router {

OutputAssembler::OutputAssembler(std::shared_ptr<const text::Tokenizer> tokenizer,
                                 bool skip_special_tokens, std::span<const std::string> stops,
                                 uint32_t min_tokens, std::vector<int32_t> shown)
    : stream_(std::move(tokenizer), skip_special_tokens, std::move(shown)),
      matcher_(stops),
      n_before_stops_(min_tokens > 0 ? min_tokens - 1 : 0) {}

std::string OutputAssembler::Push(int32_t token) {
  std::string piece = stream_.Push(token);
  if (n_before_stops_ > 0) {
    --n_before_stops_;
    return piece;
  }
  return matcher_.Append(piece);
}

std::string OutputAssembler::End() {
  if (matcher_.matched() != nullptr) return "";
  std::string rest = matcher_.Append(stream_.Flush());
  return rest + matcher_.Flush();
}

}  // namespace stagecoach::router
