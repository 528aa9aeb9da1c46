#include "kernels/cuda/emulation/runtime.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "kernels/cuda/emulation/devices.h"

struct EmulatedGraph {
  std::vector<std::function<void()>> calls;
};

struct EmulatedStream {
  static constexpr size_t kQueued = 1024;

  EmulatedStream();
  ~EmulatedStream();

  void Push(std::optional<std::function<void()>> work) {
    std::unique_lock lock(mutex);
    // The launching thread blocks while the queue is full, as with a real GPU. A stream's own
    // thread never blocks.
    changed.wait(lock, [this] {
      return queue.size() < kQueued || thread.get_id() == std::this_thread::get_id();
    });
    queue.push_back(std::move(work));
    changed.notify_all();
  }

  void Run() {
    uint32_t random = 1;
    for (;;) {
      std::optional<std::function<void()>> work;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return !queue.empty(); });
        work = std::move(queue.front());
        queue.pop_front();
        if (queue.size() + 1 == kQueued) changed.notify_all();
      }
      if (!work) return;
      // At random, let another stream or the host get ahead.
      random = random * 1664525u + 1013904223u;
      const uint32_t draw = random >> 24;
      for (uint32_t n = draw < 16 ? draw : 0; n > 0; --n) std::this_thread::yield();
      (*work)();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::optional<std::function<void()>>> queue;  // an empty entry ends the thread
  std::unique_ptr<EmulatedGraph> captured;                 // set during stream capture
  std::thread thread;
};

struct EmulatedEvent {
  using Clock = std::chrono::steady_clock;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t n_recorded = 0;  // number of cudaEventRecord calls
  uint64_t n_done = 0;      // number of those that completed
  Clock::time_point at;
  std::shared_ptr<EmulatedEvent>
      self;  // reset by cudaEventDestroy; queued work also keeps the event alive

  uint64_t LastRecord() {
    const std::lock_guard lock(mutex);
    return n_recorded;
  }
  void Await(uint64_t record) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return n_done >= record; });
  }
};

namespace {

constexpr size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xa5, kNan = 0xff;
constexpr size_t kMemoryBytes = size_t{4} << 30;

// Device memory by address, and the streams that may use it.
struct Device {
  std::mutex mutex;
  std::map<void*, size_t> sizes;
  size_t n_used = 0;
  std::set<EmulatedStream*> streams;
};

Device& TheDevice() {
  static Device* const device = new Device;
  return *device;
}

// A new event after all work that `stream` has so far.
std::shared_ptr<EmulatedEvent> RecordNew(EmulatedStream* stream) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, 0);
  std::shared_ptr<EmulatedEvent> recorded = event->self;
  cudaEventRecord(event, stream);
  cudaEventDestroy(event);
  return recorded;
}

// cudaFree and cudaFreeHost synchronize the device. On a stream's own thread this returns at once,
// because the thread would wait for itself.
void SynchronizeDevice() {
  std::vector<std::shared_ptr<EmulatedEvent>> ends;
  {
    const std::lock_guard lock(TheDevice().mutex);
    for (EmulatedStream* const stream : TheDevice().streams) {
      if (stream->thread.get_id() == std::this_thread::get_id()) return;
    }
    for (EmulatedStream* const stream : TheDevice().streams) ends.push_back(RecordNew(stream));
  }
  for (const auto& end : ends) end->Await(1);
}

std::atomic<int> n_devices{1};
thread_local int current_device = 0;
std::atomic<bool> device_is_lost{false};
std::atomic<size_t> block_shared_bytes{simt::kUsualBlockSharedBytes};

// The result of a call that has no error of its own.
cudaError_t Answer() { return device_is_lost ? cudaErrorIllegalAddress : cudaSuccess; }

unsigned char* Base(void* memory) { return static_cast<unsigned char*>(memory) - kGuardBytes; }

void CheckGuards(void* memory, size_t bytes) {
  const unsigned char* const before = Base(memory);
  const unsigned char* const after = before + kGuardBytes + bytes;
  for (size_t i = 0; i < kGuardBytes; ++i) {
    if (before[i] == kGuard && after[i] == kGuard) continue;
    std::fprintf(stderr, "a kernel wrote outside its %zu bytes of device memory\n", bytes);
    std::abort();
  }
}

}  // namespace

EmulatedStream::EmulatedStream() : thread([this] { Run(); }) {
  const std::lock_guard lock(TheDevice().mutex);
  TheDevice().streams.insert(this);
}
EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard lock(TheDevice().mutex);
    TheDevice().streams.erase(this);
  }
  Push(std::nullopt);
  thread.join();
}

namespace simt {

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream->captured != nullptr) {
    stream->captured->calls.push_back(std::move(work));
  } else {
    stream->Push(std::move(work));
  }
}

void LoseDevice(bool is_lost) { device_is_lost = is_lost; }
void SetDeviceCount(int n) { n_devices = n; }
void SetBlockSharedBytes(size_t bytes) { block_shared_bytes = bytes; }

}  // namespace simt

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "emulated error";
}
cudaError_t cudaGetLastError() { return Answer(); }

cudaError_t cudaGetDeviceCount(int* n) {
  *n = n_devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= n_devices) return cudaErrorInvalidValue;
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated");
  properties->major = 9;
  properties->multiProcessorCount = 2;
  properties->totalGlobalMem = kMemoryBytes;
  properties->sharedMemPerBlockOptin = block_shared_bytes;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Device& device = TheDevice();
  const std::lock_guard lock(device.mutex);
  *total = kMemoryBytes;
  *free = kMemoryBytes - std::min(kMemoryBytes, device.n_used);
  return Answer();
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (device_is_lost) return Answer();
  Device& device = TheDevice();
  const std::lock_guard lock(device.mutex);
  if (device.n_used + bytes > kMemoryBytes) return cudaErrorMemoryAllocation;
  const size_t all = (bytes + 2 * kGuardBytes + 255) / 256 * 256;
  auto* const base = static_cast<unsigned char*>(std::aligned_alloc(256, all));
  if (base == nullptr) return cudaErrorMemoryAllocation;
  std::memset(base, kGuard, all);
  std::memset(base + kGuardBytes, kNan, bytes);
  *memory = base + kGuardBytes;
  device.sizes[*memory] = bytes;
  device.n_used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  SynchronizeDevice();
  Device& device = TheDevice();
  const std::lock_guard lock(device.mutex);
  const auto at = device.sizes.find(memory);
  if (at == device.sizes.end()) return cudaErrorInvalidValue;
  CheckGuards(memory, at->second);
  device.n_used -= at->second;
  std::memset(memory, kNan, at->second);  // poison for later reads
  device.sizes.erase(at);
  std::free(Base(memory));
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }

cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* memory) {
  SynchronizeDevice();
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  simt::Enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  simt::Enqueue(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  RecordNew(stream)->Await(1);
  return Answer();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  auto made = std::make_shared<EmulatedEvent>();
  made->self = made;
  *event = made.get();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  event->self.reset();
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  {
    const std::lock_guard lock(event->mutex);
    ++event->n_recorded;
  }
  stream->Push([event, keep = event->self] {
    const std::lock_guard lock(event->mutex);
    ++event->n_done;
    event->at = EmulatedEvent::Clock::now();
    event->changed.notify_all();
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  event->Await(event->LastRecord());
  return Answer();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  return event->n_done == event->n_recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  simt::Enqueue(
      stream, [event, keep = event->self, record = event->LastRecord()] { event->Await(record); });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->captured = std::make_unique<EmulatedGraph>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->captured.release();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned) {
  *executable = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const auto& call : executable->calls) stream->Push(call);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
