// What a person may have meant by a word that the program does not know.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace stagecoach::cli {

// The one of `known` that a few typing errors make of `word`; empty: none is near.
std::string Nearest(std::string_view word, std::span<const std::string> known);

// The error for command-line words that parsing left over, in the order given; `app` has parsed. A
// line for each, without line end. Empty: nothing to add to what the parser says.
std::string UnknownWords(const CLI::App& app, std::span<const std::string> arguments);

}  // namespace stagecoach::cli
