#include "worker/transport/nccl/link_offer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/nccl_version.h"

namespace stagecoach::worker {
namespace {

constexpr uint32_t kMagic = 0x4c4e4353;  // "SCNL"
constexpr uint32_t kVersion = 1;

struct Header {
  uint32_t magic;
  uint32_t version;
  uint64_t epoch;
  int32_t nccl_version;
  uint32_t n_ids;
  char host[64];  // NUL-terminated
};
static_assert(sizeof(Header) == 88);

}  // namespace

std::string EncodeLinkTerms(const LinkTerms& terms) {
  Header header{.magic = kMagic,
                .version = kVersion,
                .epoch = terms.epoch,
                .nccl_version = terms.nccl_version,
                .n_ids = static_cast<uint32_t>(terms.ids.size()),
                .host = {}};
  terms.host.copy(header.host, sizeof(header.host) - 1);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  for (const NcclUniqueId& id : terms.ids) bytes.append(id.bytes, sizeof(id.bytes));
  return bytes;
}

absl::StatusOr<LinkTerms> DecodeLinkTerms(std::string_view bytes, uint64_t epoch, int nccl_version,
                                          size_t n_ids) {
  Header header;
  if (bytes.size() < sizeof(header)) {
    return absl::InvalidArgumentError("not the terms of a link between stages");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) {
    return absl::InvalidArgumentError("not the terms of a link between stages");
  }
  if (header.version != kVersion) {
    return absl::FailedPreconditionError(
        "terms of a link of another version: run the same stagecoach version on all stages");
  }
  if (header.n_ids != n_ids || bytes.size() != sizeof(header) + n_ids * sizeof(NcclUniqueId)) {
    return absl::InvalidArgumentError("terms of a link with another number of channels");
  }
  header.host[sizeof(header.host) - 1] = '\0';
  if (header.epoch != epoch) {
    return absl::FailedPreconditionError(
        fmt::format("terms of a link of epoch {} instead of epoch {}", header.epoch, epoch));
  }
  // NCCL would wait forever for a peer with an incompatible version.
  if (header.nccl_version / 100 != nccl_version / 100) {
    return absl::FailedPreconditionError(fmt::format(
        "the neighbour on {} has NCCL {}, this worker {}: install the same version on all machines",
        header.host, NcclVersionName(header.nccl_version), NcclVersionName(nccl_version)));
  }
  LinkTerms terms{.epoch = header.epoch,
                  .nccl_version = header.nccl_version,
                  .host = header.host,
                  .ids = std::vector<NcclUniqueId>(n_ids)};
  for (size_t i = 0; i < n_ids; ++i) {
    std::memcpy(terms.ids[i].bytes, bytes.data() + sizeof(header) + i * sizeof(NcclUniqueId),
                sizeof(NcclUniqueId));
  }
  return terms;
}

}  // namespace stagecoach::worker
