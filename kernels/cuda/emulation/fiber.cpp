#include "kernels/cuda/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace simt {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;

}  // namespace

bool Fiber::MakeContext(ucontext_t* context) {
  void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) return false;
  stack_ = stack;
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(context, reinterpret_cast<void (*)()>(&Fiber::Begin), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  return true;
}

Fiber::~Fiber() {
#ifdef __SANITIZE_THREAD__
  if (own_fiber_ != nullptr) __tsan_destroy_fiber(own_fiber_);
#endif
  if (stack_ != nullptr) munmap(stack_, kStackBytes);
}

// makecontext only passes int arguments, so the pointer arrives in two halves.
void Fiber::Begin(unsigned high, unsigned low) {
  reinterpret_cast<Fiber*>((uintptr_t{high} << 32) | low)->Enter();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

void Fiber::Enter() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &outside_stack_, &outside_bytes_);
#endif
  body_();
}

// Uses swapcontext: ThreadSanitizer assumes that longjmp stays on the same stack.
bool Fiber::Resume() {
  if (stack_ == nullptr) {
    if (!MakeContext(&own_)) return false;
#ifdef __SANITIZE_THREAD__
    own_fiber_ = __tsan_create_fiber(0);
#endif
  }
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&outside_fake_stack_, stack_, kStackBytes);
#endif
#ifdef __SANITIZE_THREAD__
  outside_fiber_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_fiber_, 0);
#endif
  swapcontext(&outside_, &own_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(outside_fake_stack_, nullptr, nullptr);
#endif
  return true;
}

void Fiber::Yield() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&own_fake_stack_, outside_stack_, outside_bytes_);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(outside_fiber_, 0);
#endif
  swapcontext(&own_, &outside_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(own_fake_stack_, &outside_stack_, &outside_bytes_);
#endif
}

#else

void Fiber::Enter() { body_(); }

// Uses setjmp and longjmp: swapcontext makes a system call for the signal mask every time.
bool Fiber::Resume() {
  if (_setjmp(outside_) != 0) return true;
  if (stack_ != nullptr) _longjmp(own_, 1);
  ucontext_t context;
  if (!MakeContext(&context)) return false;
  setcontext(&context);
  return false;
}

void Fiber::Yield() {
  if (_setjmp(own_) == 0) _longjmp(outside_, 1);
}

#endif

}  // namespace simt
