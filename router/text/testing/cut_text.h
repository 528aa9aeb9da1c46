// For tests of readers that get text in pieces.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <string_view>
#include <vector>

namespace stagecoach::router {

using Pieces = std::vector<std::string_view>;

// Gives a reader all pieces and the end. take(output): for the reader's outputs, in order.
template <typename Reader, typename Take>
void ReadPieces(Reader& reader, const Pieces& pieces, const Take& take) {
  for (const std::string_view piece : pieces) {
    typename Reader::Output out;
    reader.Push(piece, &out);
    take(out);
  }
  typename Reader::Output out;
  reader.End(&out);
  take(out);
}

// Returns read({text}). The text cut in two at any byte, and byte by byte, must give the same.
template <typename Read>
auto ReadCutAnywhere(std::string_view text, const Read& read) {
  const auto whole = read(Pieces{text});
  Pieces bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    INFO("cut at " << i << " of " << text);
    REQUIRE(read(Pieces{text.substr(0, i), text.substr(i)}) == whole);
    bytes.push_back(text.substr(i, 1));
  }
  REQUIRE(read(bytes) == whole);
  return whole;
}

}  // namespace stagecoach::router
