// Tokens of one choice to the text that its client reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/text/token_stream.h"
#include "router/text/stop_matcher.h"

namespace stagecoach::router {

// All texts returned, one after the other, are the whole decode of the tokens up to a stop string.
// Pieces are whole UTF-8 characters. One thread at a time.
class OutputAssembler {
 public:
  // `stops` outlives the assembler. Stop strings that would end the text before `min_tokens` tokens
  // are ordinary text.
  // `shown`: special tokens that are text even if others are skipped.
  OutputAssembler(std::shared_ptr<const text::Tokenizer> tokenizer, bool skip_special_tokens,
                  std::span<const std::string> stops, uint32_t min_tokens,
                  std::vector<int32_t> shown = {});

  // Not to be called after a stop string was found.
  std::string Push(int32_t token);
  // No token follows. May find a stop string in what was an open character until now.
  std::string End();

  // The stop string found, or null.
  const std::string* stop() const { return matcher_.matched(); }

 private:
  text::TokenStream stream_;
  StopMatcher matcher_;
  uint32_t n_before_stops_;  // tokens still to come before stop strings count
};

}  // namespace stagecoach::router
