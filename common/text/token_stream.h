// Incremental detokenization for one request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/tokenizer.h"

namespace stagecoach::text {

// The results of all Push and Flush calls, concatenated, equal Tokenizer::Decode of all ids. Each
// result consists of whole UTF-8 characters. Not thread-safe: one thread at a time may use a
// stream.
//
// Works on the tokenizer's table of token bytes, without the tokenizers library. A character that
// is spelled with byte-fallback tokens appears when the run of such tokens ends, because one
// invalid byte changes the whole run. Some decoders need the whole sequence (CTC, BPEDecoder and
// unusual chains; no language model that is served uses one). Their text appears in Flush only.
class TokenStream {
 public:
  // `shown`: special tokens that become text even if the others are skipped.
  TokenStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
              std::vector<int32_t> shown = {});

  std::string Push(int32_t id);

  // Returns the rest of the text, with U+FFFD for an unfinished character. Resets the stream.
  std::string Flush();

 private:
  void PushText(int32_t id, uint8_t flags, std::string& out);
  void EndByteRun(std::string& out);
  void AppendStripped(std::string_view piece, std::string& out);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> shown_;     // special tokens
  bool first_ = true;              // no token has contributed text yet
  int32_t n_strip_left_;           // characters that may still be stripped from the start
  std::string pending_;            // bytes of an unfinished character or a byte-fallback run
  std::vector<int32_t> held_ids_;  // only with SC_TEXT_DECODE_WHOLE
};

}  // namespace stagecoach::text
