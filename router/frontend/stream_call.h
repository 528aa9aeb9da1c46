// The sources of a gRPC stream: the messages of a request, or a kept stream that runs
// independently.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "router/frontend/arrival.h"
#include "router/frontend/generation.h"
#include "router/frontend/stream_source.h"
#include "router/journal/journal_content.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

class Frontend;

// A stream, or why there is none.
using MaybeSource = absl::StatusOr<std::shared_ptr<StreamSource>>;

// The stream of `request`, which must live as long as `out`. The stream of a resumable request is
// kept, and runs on without the client.
MaybeSource MakeSource(Frontend* frontend, const v1::GenerateRequest& request,
                       const Arrival& arrival, ResponseWriter* out);
MaybeSource MakeSource(Frontend* frontend, const v1::ChatRequest& request, const Arrival& arrival,
                       ResponseWriter* out);
// The rest of a kept stream.
MaybeSource MakeSource(Frontend* frontend, const v1::ResumeRequest& request, const Arrival& arrival,
                       ResponseWriter* out);

// Goes on with a stream of the journal that an earlier router began for a gRPC client. `done` is
// called when its output so far can be read. Errors are those of StreamStore::Create.
absl::Status ContinueStream(Frontend* frontend, JournalStream stream, const Arrival& arrival,
                            WorkQueue::Task done);

}  // namespace stagecoach::router
