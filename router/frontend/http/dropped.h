// Notes what requests ask for and the server leaves out, because an answer without it is still
// useful: hints, and tools that only another company's servers can run.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach::router::http {

// Logs at info that `what` is left out: once for each `what`, and for a bounded number of them.
// Thread-safe.
void NoteDropped(std::string_view what);

// The text that a tool's result has in place of a part of the type `type`, such as a picture. It
// is also noted. A refusal would end an agent's conversation, because every later request of the
// conversation has the same part.
std::string TextInsteadOf(std::string_view type);

}  // namespace stagecoach::router::http
