// A checkpoint's tokenizer. The first byte selects the file's kind; the rest is the file. A
// tokenizer that loads must encode, decode and stream without a crash; the results may be anything.
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/text/token_stream.h"
#include "common/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace stagecoach;

constexpr const char* kFiles[] = {"tokenizer.json", "tokenizer.model", "tekken.json"};
constexpr const char* kText = "Hello <s> wörld\n\n 123 \xF0\x9F\x9A\x82 the end";

void Use(const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  const auto ids = tokenizer->Encode(kText, true);
  fuzz::Accept(ids.status());
  const text::TextRange plain{6, 9};
  fuzz::Accept(tokenizer->EncodeRendered(kText, {&plain, 1}).status());
  if (!ids.ok()) return;
  fuzz::Accept(tokenizer->Decode(*ids, true).status());
  text::TokenStream stream(tokenizer, false);
  for (const int32_t id : *ids) {
    if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
    stream.Push(id);
  }
  stream.Flush();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const char* const name = kFiles[data[0] % std::size(kFiles)];
  const fuzz::Folder& folder = fuzz::TheFolder();
  folder.Write(name, fuzz::Text(data + 1, size - 1));
  const auto tokenizer = text::Tokenizer::Load(folder.path());
  fuzz::Accept(tokenizer.status());
  if (tokenizer.ok()) Use(*tokenizer);
  std::filesystem::remove(folder.File(name));
  return 0;
}
