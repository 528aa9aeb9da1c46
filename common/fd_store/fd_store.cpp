#include "common/fd_store/fd_store.h"

#include <fcntl.h>

#include <utility>

namespace stagecoach {

void FdStore::Keep(const std::string& name, KeptFd kept) {
  const MutexLock lock(mutex_);
  kept_.insert_or_assign(name, std::move(kept));
}

std::optional<KeptFd> FdStore::Get(const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto found = kept_.find(name);
  if (found == kept_.end()) return std::nullopt;
  UniqueFd copy(fcntl(found->second.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return std::nullopt;  // no descriptor is free; the memory is made again
  return KeptFd{.description = found->second.description, .fd = std::move(copy)};
}

void FdStore::Drop(const std::string& name) {
  const MutexLock lock(mutex_);
  kept_.erase(name);
}

void FdStore::Clear() {
  const MutexLock lock(mutex_);
  kept_.clear();
}

}  // namespace stagecoach
