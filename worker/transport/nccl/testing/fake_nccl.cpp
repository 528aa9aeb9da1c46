#include "worker/transport/nccl/testing/fake_nccl.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "kernels/cuda/emulation/devices.h"

struct stagecoach::worker::NcclCommunicator {
  ~NcclCommunicator() {
    if (init.joinable()) init.join();
    if (first.joinable()) first.join();
    if (fd >= 0) close(fd);
    close(abort_event);
  }
  std::atomic<bool> aborted{false};
  const int abort_event = eventfd(0, EFD_CLOEXEC);  // readable from the abort on
  std::atomic<int> fd{-1};                          // once connected
  std::atomic<stagecoach::worker::NcclResult> state{stagecoach::worker::kNcclInProgress};
  std::thread init;
  std::thread first;  // allocations of the first message
  int device = 0;
  bool is_used = false;  // used by its one calling thread
};

namespace stagecoach::worker {
namespace {

constexpr std::chrono::milliseconds kSenderAllocatesLater(20);

std::atomic<bool> failing{false}, blocking{false}, allocating{false};
std::atomic<int> n_to_cut{0};
constexpr int kMostDevices = 16;
std::atomic<uint32_t> delay_seed{0};

struct Registry {
  Mutex mutex;
  CondVar changed;
  bool frozen ABSL_GUARDED_BY(mutex) = false;
  std::array<int, kMostDevices> n_under_way ABSL_GUARDED_BY(mutex){};  // messages, by device
  std::map<std::string, int> listeners ABSL_GUARDED_BY(mutex);         // by address
  std::map<NcclComm, std::shared_ptr<NcclCommunicator>> comms ABSL_GUARDED_BY(mutex);
  int n_ids ABSL_GUARDED_BY(mutex) = 0;
  std::function<void()> on_abort ABSL_GUARDED_BY(mutex);
};
Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

sockaddr_un AddressOf(const std::string& name, socklen_t* size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // An abstract address: it begins with a NUL.
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

NcclResult GetVersion(int* version) {
  *version = 22809;
  return kNcclSuccess;
}

NcclResult GetUniqueId(NcclUniqueId* id) {
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  const std::string name = fmt::format("stagecoach-fake-nccl-{}-{}", getpid(), registry.n_ids++);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = 0;
  const sockaddr_un address = AddressOf(name, &size);
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(fd, 1) != 0) {
    return kNcclInternalError;
  }
  registry.listeners[name] = fd;
  *id = {};
  name.copy(id->bytes, sizeof(id->bytes) - 1);
  return kNcclSuccess;
}

// Waits until `fd` has `events`. Returns false once aborted. With an fd of -1: waits for the abort.
bool Await(NcclCommunicator* comm, int fd, short events) {
  std::array<pollfd, 2> fds{pollfd{.fd = fd, .events = events, .revents = 0},
                            pollfd{.fd = comm->abort_event, .events = POLLIN, .revents = 0}};
  poll(fds.data(), fds.size(), -1);
  return !comm->aborted;
}

void Connect(NcclCommunicator* comm, const std::string& name, int rank) {
  int fd = -1;
  if (rank == 0) {
    int listener = -1;
    {
      const MutexLock lock(TheRegistry().mutex);
      const auto found = TheRegistry().listeners.find(name);
      if (found != TheRegistry().listeners.end()) listener = found->second;
    }
    if (listener < 0) {
      comm->state = kNcclInternalError;
      return;
    }
    if (Await(comm, listener, POLLIN)) fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  } else {
    // The address is older than its id, and each has one peer.
    socklen_t size = 0;
    const sockaddr_un address = AddressOf(name, &size);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      close(fd);
      comm->state = kNcclInternalError;
      return;
    }
  }
  comm->fd = fd;
  comm->state = kNcclSuccess;
}

NcclResult Init(NcclComm* out, int n_ranks, NcclUniqueId id, int rank, NcclConfig* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return kNcclInternalError;
  auto comm = std::make_shared<NcclCommunicator>();
  cudaGetDevice(&comm->device);
  if (n_ranks == 1) {
    comm->state = kNcclSuccess;
  } else {
    comm->init = std::thread(
        [comm = comm.get(), name = std::string(id.bytes), rank] { Connect(comm, name, rank); });
  }
  *out = comm.get();
  const MutexLock lock(TheRegistry().mutex);
  TheRegistry().comms[*out] = std::move(comm);
  return kNcclInProgress;
}

NcclResult GetAsyncError(NcclComm comm, NcclResult* result) {
  *result = comm->state;
  return kNcclSuccess;
}

NcclResult Abort(NcclComm handle) {
  std::shared_ptr<NcclCommunicator> comm;
  std::function<void()> on_abort;
  {
    const MutexLock lock(TheRegistry().mutex);
    comm = std::move(TheRegistry().comms.extract(handle).mapped());
    on_abort = TheRegistry().on_abort;
    comm->aborted = true;
    TheRegistry().changed.notify_all();
  }
  eventfd_write(comm->abort_event, 1);
  if (on_abort) on_abort();
  return kNcclSuccess;
}

void Delay() {
  const uint32_t seed = delay_seed;
  if (seed == 0) return;
  static thread_local std::minstd_rand random(seed);
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
}

// Transfers all `n` bytes in one direction, unless aborted before.
template <typename Move>
void Transfer(NcclCommunicator* comm, char* data, size_t n, short events, const Move& move) {
  Delay();
  for (size_t done = 0; done < n && !comm->aborted;) {
    if (!Await(comm, comm->fd, events)) return;
    {
      Registry& registry = TheRegistry();
      MutexLock lock(registry.mutex);
      registry.changed.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry.mutex) {
        return !registry.frozen || comm->aborted;
      });
    }
    if (comm->aborted) return;
    const ssize_t moved = move(comm->fd, data + done, n - done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved == 0 || errno != EAGAIN) {
      Await(comm, -1, 0);  // the peer is gone
    }
  }
}

// Queues a transfer. With blocking launches, the call returns only when the transfer is done.
template <typename Work>
NcclResult Launch(NcclComm handle, cudaStream_t stream, bool comes_later, const Work& work) {
  std::shared_ptr<NcclCommunicator> comm;
  {
    const MutexLock lock(TheRegistry().mutex);
    comm = TheRegistry().comms.at(handle);
  }
  const auto queue = [stream, work](std::shared_ptr<NcclCommunicator> of) {
    simt::Enqueue(stream, [comm = std::move(of), work] {
      const auto count = [&](int change) {
        const MutexLock in(TheRegistry().mutex);
        TheRegistry().n_under_way.at(static_cast<size_t>(comm->device)) += change;
        TheRegistry().changed.notify_all();
      };
      count(1);
      work(comm.get());
      count(-1);
      comm->state = kNcclSuccess;
    });
  };
  if (allocating && !std::exchange(comm->is_used, true)) {
    comm->state = kNcclInProgress;
    NcclCommunicator* const self = comm.get();
    comm->first = std::thread([comm = self, shared = std::weak_ptr(comm), queue, comes_later] {
      if (comes_later) std::this_thread::sleep_for(kSenderAllocatesLater);
      {
        Registry& registry = TheRegistry();
        MutexLock lock(registry.mutex);
        registry.changed.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry.mutex) {
          return registry.n_under_way.at(static_cast<size_t>(comm->device)) == 0 || comm->aborted;
        });
      }
      if (auto held = shared.lock()) queue(std::move(held));
      if (!blocking) comm->state = kNcclSuccess;
    });
    return self->state;
  }
  if (blocking) comm->state = kNcclInProgress;
  const NcclResult result = comm->state;
  queue(std::move(comm));
  return result;
}

NcclResult Send(const void* data, size_t n, int, int, NcclComm comm, cudaStream_t stream) {
  if (failing) return kNcclInternalError;
  return Launch(comm, stream, /*comes_later=*/true, [data, n](NcclCommunicator* to) {
    Transfer(to, static_cast<char*>(const_cast<void*>(data)), n, POLLOUT,
             [](int fd, char* at, size_t left) {
               return send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT);
             });
  });
}

NcclResult Receive(void* data, size_t n, int, int, NcclComm comm, cudaStream_t stream) {
  return Launch(comm, stream, /*comes_later=*/false, [data, n](NcclCommunicator* from) {
    if (n_to_cut > 0 && n_to_cut-- > 0) return;
    Transfer(from, static_cast<char*>(data), n, POLLIN,
             [](int fd, char* at, size_t left) { return recv(fd, at, left, MSG_DONTWAIT); });
  });
}

}  // namespace

const NcclApi* FakeNccl() {
  static const NcclApi api{
      .get_version = GetVersion,
      .get_unique_id = GetUniqueId,
      .comm_init_rank_config = Init,
      .comm_get_async_error = GetAsyncError,
      .comm_abort = Abort,
      .send = Send,
      .recv = Receive,
      .get_error_string = [](NcclResult) -> const char* { return "internal error"; },
      .get_last_error = [](NcclComm) -> const char* { return "as the test says"; }};
  return &api;
}

void FreezeFakeNccl(bool value) {
  const MutexLock lock(TheRegistry().mutex);
  TheRegistry().frozen = value;
  TheRegistry().changed.notify_all();
}
void BlockFakeNcclLaunches(bool value) { blocking = value; }
void FailFakeNcclSends(bool value) { failing = value; }
void CutFakeNcclReceives(int n) { n_to_cut = n; }
void AllocateInFakeNccl(bool allocates) { allocating = allocates; }
void OnFakeNcclAbort(std::function<void()> aborted) {
  const MutexLock lock(TheRegistry().mutex);
  TheRegistry().on_abort = std::move(aborted);
}
void DelayFakeNccl(uint32_t seed) { delay_seed = seed; }
int64_t FakeNcclCommunicators() {
  const MutexLock lock(TheRegistry().mutex);
  return static_cast<int64_t>(TheRegistry().comms.size());
}

}  // namespace stagecoach::worker
