#include "cli/checked_start.h"

#include "cli/check/check_model.h"
#include "cli/serve_options.h"
#include "common/flags/serve_flags.h"
#include "common/status.h"
#include "router/access/access.h"

namespace stagecoach::cli {
namespace {

absl::Status CheckModel(const launch::ClusterOptions& options, bool read_large_tokenizer) {
  check::CheckOptions check{
      .model = options.model,
      .chat_template = options.serve.chat_template,
      .adapter_dir = options.serve.merge_adapter,
      .dtype = ParseDTypeFlag(options.serve.dtype),
      .n_stages = static_cast<int32_t>(options.n_stages),
      .kv_memory_bytes = options.serve.kv_memory_bytes,
      .max_model_len = static_cast<int32_t>(options.serve.max_model_len),
      .limits = {.max_batched_tokens = static_cast<int32_t>(options.serve.max_batched_tokens),
                 .max_sequences = static_cast<int32_t>(options.serve.max_sequences),
                 .max_prefill_chunk = static_cast<int32_t>(options.serve.prefill_chunk)},
      .on_gpus = options.device == "cuda",
      .read_weights = options.serve.load_format != "dummy",
      .read_large_tokenizer = read_large_tokenizer};
  check::ModelReport report = check::CheckModel(check);
  if (report.ok()) return absl::OkStatus();
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
  SC_RETURN_IF_ERROR(router::Access::Read({.api_keys = options.serve.api_keys,
                                           .tls_cert = options.serve.tls_cert,
                                           .tls_key = options.serve.tls_key})
                         .status());
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
