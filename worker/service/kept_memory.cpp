#include "worker/service/kept_memory.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/size.h"
#include "common/status.h"
#include "worker/service/stage_identity.h"

namespace stagecoach::worker {
namespace {

constexpr const char* kWeights = "weights";
constexpr const char* kKv = "kv";

}  // namespace

template <typename Kept>
std::optional<Kept> KeptMemory::Find(const char* name) {
  const std::optional<KeptFd> found = store_->Get(name).value_or(std::nullopt);
  if (!found) return std::nullopt;
  Kept kept;
  if (kept.ParseFromString(found->description) && kept.stage() == stage_) return kept;
  Drop(name);
  return std::nullopt;
}

void KeptMemory::Keep(const char* name, const std::string& description, const UniqueFd& fd) {
  if (const absl::Status kept = store_->Keep(name, description, fd); !kept.ok()) {
    spdlog::warn("a replacement of this process will not find its {}: {}", name,
                 std::string(kept.message()));
  }
}

void KeptMemory::Drop(const char* name) {
  if (store_ != nullptr) store_->Drop(name).IgnoreError();  // a store that is gone holds nothing
}

void KeptMemory::DropKv() {
  kv_.reset();
  Drop(kKv);
}

void KeptMemory::Distrust() {
  Drop(kWeights);
  Drop(kKv);
}

void KeptMemory::BeginLoad(const v1::LoadRequest& request) {
  new_weights_.reset();
  weights_.reset();
  kv_.reset();
  has_mapped_weights_ = false;
  if (store_ == nullptr) return;
  stage_ = StageIdentity(request, *ops_);
  kv_memory_bytes_ = request.config().kv_memory_bytes();
  weights_ = Find<v1::KeptWeights>(kWeights);
  kv_ = Find<v1::KeptKv>(kKv);
  // A report without a given size counted the free memory, which this process cannot: its
  // predecessor's KV cache is still there.
  has_report_ = weights_ && (kv_memory_bytes_ > 0 || weights_->kv_memory_bytes() == 0);
}

std::optional<kernels::Buffer> KeptMemory::Map(const char* name, size_t bytes) {
  const std::optional<KeptFd> found = store_->Get(name).value_or(std::nullopt);
  if (!found) return std::nullopt;
  absl::StatusOr<kernels::Buffer> mapped = ops_->MapShared(found->fd.get(), bytes);
  if (mapped.ok()) return *std::move(mapped);
  spdlog::warn("the {} of the process before cannot be used: {}", name,
               std::string(mapped.status().message()));
  return std::nullopt;
}

LastingMemory KeptMemory::Weights() {
  if (store_ == nullptr) return {};
  return {.find = [this](size_t bytes) -> std::optional<kernels::Buffer> {
            if (!weights_ || weights_->n_bytes() != bytes) return std::nullopt;
            std::optional<kernels::Buffer> mapped = Map(kWeights, bytes);
            has_mapped_weights_ = mapped.has_value();
            return mapped;
          },
          .make = [this](size_t bytes) -> absl::StatusOr<kernels::Buffer> {
            Drop(kWeights);  // before more memory is taken
            DropKv();
            absl::StatusOr<kernels::SharedBuffer> shared = ops_->AllocateShared(bytes);
            if (absl::IsUnimplemented(shared.status())) return ops_->Allocate(bytes);
            if (!shared.ok()) return shared.status();
            new_weights_ = *std::move(shared);
            return new_weights_->buffer;
          }};
}

void KeptMemory::KeepWeights(const v1::MemoryReport& report) {
  if (!new_weights_) return;
  v1::KeptWeights kept;
  kept.set_stage(stage_);
  kept.set_n_bytes(new_weights_->buffer.bytes);
  *kept.mutable_report() = report;
  kept.set_tuning(ops_->Tuning());
  kept.set_kv_memory_bytes(kv_memory_bytes_);
  Keep(kWeights, kept.SerializeAsString(), new_weights_->fd);
  new_weights_.reset();
}

LastingMemory KeptMemory::Kv(const std::vector<uint64_t>& n_blocks, uint64_t epoch) {
  kv_since_ = epoch;
  if (store_ == nullptr) return {};
  return {.find = [this, n_blocks](size_t bytes) -> std::optional<kernels::Buffer> {
            if (!kv_ || kv_->n_bytes() != bytes ||
                !std::equal(n_blocks.begin(), n_blocks.end(), kv_->n_blocks().begin(),
                            kv_->n_blocks().end())) {
              return std::nullopt;
            }
            std::optional<kernels::Buffer> mapped = Map(kKv, bytes);
            if (!mapped || !ops_->AdoptKv(*mapped, kv_->notes()).ok()) return std::nullopt;
            kv_since_ = kv_->since_epoch();
            return mapped;
          },
          .make = [this, n_blocks, epoch](size_t bytes) -> absl::StatusOr<kernels::Buffer> {
            DropKv();
            absl::StatusOr<kernels::SharedBuffer> shared = ops_->AllocateShared(bytes);
            if (absl::IsUnimplemented(shared.status())) return ops_->AllocateKv(bytes);
            if (!shared.ok()) return shared.status();
            v1::KeptKv kept;
            kept.set_stage(stage_);
            kept.set_n_bytes(bytes);
            kept.mutable_n_blocks()->Add(n_blocks.begin(), n_blocks.end());
            kept.set_since_epoch(epoch);
            SC_ASSIGN_OR_RETURN(*kept.mutable_notes(), ops_->AdoptKv(shared->buffer, ""));
            Keep(kKv, kept.SerializeAsString(), shared->fd);
            return shared->buffer;
          }};
}

}  // namespace stagecoach::worker
