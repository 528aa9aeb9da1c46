// Turns the tokens of one choice into the text that the client reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/text/token_stream.h"
#include "router/text/stop_matcher.h"

namespace stagecoach::router {

// The returned texts, concatenated, are the decoded tokens up to a stop string. Each piece is whole
// UTF-8 characters. One thread at a time.
class OutputAssembler {
 public:
  // `stops` outlives the assembler. Stop strings that would end the text before `min_tokens` tokens
  // count as ordinary text. `shown`: special tokens that appear in the text even if others are
  // skipped.
  OutputAssembler(std::shared_ptr<const text::Tokenizer> tokenizer, bool skip_special_tokens,
                  std::span<const std::string> stops, uint32_t min_tokens,
                  std::vector<int32_t> shown = {});

  // Do not call it after a stop string was found.
  std::string Push(int32_t token);
  // No token follows. May find a stop string in a character that was incomplete until now.
  std::string End();

  // The stop string found, or null.
  const std::string* stop() const { return matcher_.matched(); }

 private:
  text::TokenStream stream_;
  StopMatcher matcher_;
  uint32_t n_before_stops_;  // tokens until stop strings count
};

}  // namespace stagecoach::router
