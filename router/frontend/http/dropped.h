// Notes what requests ask for and the server leaves out, because an answer without it is still
// useful: hints, and tools that only another company's servers can run.
#pragma once

#include <string_view>

namespace stagecoach::router::http {

// Logs at info that `what` is left out: once for each `what`, and for a bounded number of them.
// Thread-safe.
void NoteDropped(std::string_view what);

}  // namespace stagecoach::router::http
