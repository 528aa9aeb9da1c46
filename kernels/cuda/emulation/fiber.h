// A flow of control with a stack of its own, which runs until it yields. Sanitizers are told of
// every change of stacks.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace simt {

// One fiber runs at a time, resumed from whichever thread.
class Fiber {
 public:
  // `body` never returns.
  explicit Fiber(void (*body)()) : body_(body) {}
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it yields. False when there is no memory for its stack.
  bool Resume();
  // Back to whom Resume was called by. REQUIRES: called by this fiber.
  void Yield();

 private:
  static void Begin(unsigned high, unsigned low);
  void Enter();
  bool MakeContext(ucontext_t* context);

  void (*const body_)();
  void* stack_ = nullptr;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  ucontext_t own_, outside_;
  void *own_fake_stack_ = nullptr, *outside_fake_stack_ = nullptr;  // AddressSanitizer's
  const void* outside_stack_ = nullptr;
  size_t outside_bytes_ = 0;
  void *own_fiber_ = nullptr, *outside_fiber_ = nullptr;  // ThreadSanitizer's
#else
  jmp_buf own_, outside_;
#endif
};

}  // namespace simt
