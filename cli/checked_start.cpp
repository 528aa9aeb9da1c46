#include "cli/checked_start.h"

#include "cli/check/check_model.h"
#include "cli/check/memory_fit.h"
#include "cli/serve_options.h"
#include "common/flags/serve_flags.h"
#include "common/host_memory.h"
#include "common/status.h"
#include "router/access/access.h"

namespace stagecoach::cli {
namespace {

absl::Status CheckModel(const launch::ClusterOptions& options, bool read_large_tokenizer) {
  check::CheckOptions check{.model = options.model,
                            .chat_template = options.serve.chat_template,
                            .config = options.serve.load.config,
                            .n_stages = static_cast<int32_t>(options.n_stages),
                            .on_gpus = options.device == "cuda",
                            .read_large_tokenizer = read_large_tokenizer};
  check::ModelReport report = check::CheckModel(check);
  if (report.ok() && (check.on_gpus || !report.facts)) return absl::OkStatus();
  if (report.ok()) {
    return check::CheckMemoryFits(*report.facts, options.serve.replicas,
                                  check.config.kv_memory_bytes(), ReadHostMemory().total_bytes);
  }
  if (!read_large_tokenizer) {
    check.read_large_tokenizer = true;
    report = check::CheckModel(check);
  }
  return absl::InvalidArgumentError(ProblemsText(report, kReportColumns));
}

}  // namespace

absl::StatusOr<launch::Endpoints> CheckedStart(launch::Cluster& cluster,
                                               const launch::ClusterOptions& options) {
  // The router checks these flags too, but only after the workers have loaded.
  SC_RETURN_IF_ERROR(CheckServeFlags(options.serve));
  SC_RETURN_IF_ERROR(router::Access::Read(options.serve.access).status());
  SC_RETURN_IF_ERROR(CheckAddresses(options.serve));
  if (absl::Status status = CheckModel(options, /*read_large_tokenizer=*/false); !status.ok()) {
    return status;
  }
  absl::StatusOr<launch::Endpoints> endpoints = cluster.Start();
  if (endpoints.ok() || absl::IsCancelled(endpoints.status())) return endpoints;
  if (absl::Status status = CheckModel(options, /*read_large_tokenizer=*/true); !status.ok()) {
    return status;
  }
  return endpoints;
}

}  // namespace stagecoach::cli
