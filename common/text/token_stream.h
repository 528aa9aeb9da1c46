// Incremental detokenizing of one request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/tokenizer.h"

namespace stagecoach::text {

// All results of Push and Flush, one after the other, are Tokenizer::Decode of all ids. Each result
// is whole UTF-8 characters. Not thread-safe: one request's stream is used by one thread at a time.
//
// Works on the tokenizer's table of token bytes, without the library. A character that is spelled
// with byte-fallback tokens appears when the run of such tokens ends, since a bad byte changes all
// of the run. A decoder whose text is known for the whole sequence only (CTC, BPEDecoder and odd
// chains; no language model that is served uses one) appears in Flush alone.
class TokenStream {
 public:
  // `shown`: special tokens that are text even if others are skipped.
  TokenStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
              std::vector<int32_t> shown = {});

  std::string Push(int32_t id);

  // The rest of the text; U+FFFD for an unfinished character. The stream is as new afterwards.
  std::string Flush();

 private:
  void PushText(int32_t id, uint8_t flags, std::string& out);
  void EndByteRun(std::string& out);
  void AppendStripped(std::string_view piece, std::string& out);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> shown_;     // of special tokens
  bool first_ = true;              // no token has contributed yet
  int32_t n_strip_left_;           // characters that may still be removed from the start
  std::string pending_;            // bytes of an open character or of a byte-fallback run
  std::vector<int32_t> held_ids_;  // SC_TEXT_DECODE_WHOLE
};

}  // namespace stagecoach::text
