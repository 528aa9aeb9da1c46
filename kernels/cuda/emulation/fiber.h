// A coroutine with its own stack, which runs until it yields. Sanitizers are told about every stack
// switch.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace simt {

// Only one fiber runs at a time. Any thread may resume it.
class Fiber {
 public:
  // `body` must not return.
  explicit Fiber(void (*body)()) : body_(body) {}
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it yields. Returns false if there is no memory for its stack.
  bool Resume();
  // Returns to the caller of Resume. REQUIRES: called on this fiber.
  void Yield();

 private:
  static void Begin(unsigned high, unsigned low);
  void Enter();
  bool MakeContext(ucontext_t* context);

  void (*const body_)();
  void* stack_ = nullptr;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  ucontext_t own_, outside_;
  void *own_fake_stack_ = nullptr, *outside_fake_stack_ = nullptr;  // for AddressSanitizer
  const void* outside_stack_ = nullptr;
  size_t outside_bytes_ = 0;
  void *own_fiber_ = nullptr, *outside_fiber_ = nullptr;  // for ThreadSanitizer
#else
  jmp_buf own_, outside_;
#endif
};

}  // namespace simt
