// Suggests what a user may have meant by a word that the program does not know.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace stagecoach::cli {

// The entry of `known` that differs from `word` by the fewest typing errors; empty: none is near.
std::string Nearest(std::string_view word, std::span<const std::string> known);

// What to use instead of a flag that `command` does not have, to be appended to a message: "; use
// --stages 2". It names the other server's flag that this one may be, or the flag with the nearest
// name. `value`: what the user gave; empty: unknown. Empty: there is nothing to suggest.
std::string Advice(const std::string& flag, const CLI::App& command, const std::string& value = "");

// The error message for the words that parsing did not use, in the order given, one line per word,
// without a trailing line break. `app` must have parsed `arguments`. Empty: nothing to add to the
// parser's message.
std::string UnknownWords(const CLI::App& app, std::span<const std::string> arguments);

}  // namespace stagecoach::cli
