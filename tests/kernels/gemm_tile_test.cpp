// A product of matrices while signals are handled. On x86-64 only: on other processors no product uses the
// stack pointer for something else.

#include "kernels/gemm_tile.h"

#include <atomic>
#include <csignal>
#include <pthread.h>
#include <sys/ucontext.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "runtime/memory.h"
#include "tests/process.h"
#include "tests/test.h"

#ifdef __x86_64__

using namespace flatshard;

namespace {

std::atomic<uintptr_t> stack_begin, stack_end;
std::atomic<int> on_stack, elsewhere;

// Counts where the stack pointer of the interrupted thread was.
void look_at_stack(int, siginfo_t*, void* context) {
  const auto at = static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
  ++(at >= stack_begin && at < stack_end ? on_stack : elsewhere);
}

// A timer with a handler, on this thread; the handler has a stack of its own, so that this is safe anywhere.
class Interruptions {
 public:
  explicit Interruptions(long nanoseconds) {
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t bytes = 0;
    REQUIRE(pthread_getattr_np(pthread_self(), &attributes) == 0);
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    stack_begin = reinterpret_cast<uintptr_t>(begin);
    stack_end = stack_begin + bytes;
    on_stack = elsewhere = 0;
    const stack_t other{.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
    sigaltstack(&other, &stack_before_);
    struct sigaction action {};
    action.sa_sigaction = look_at_stack;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(SIGALRM, &action, &action_before_);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGALRM;
    event._sigev_un._tid = gettid();
    REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0);
    const itimerspec often{{0, nanoseconds}, {0, nanoseconds}};
    timer_settime(timer_, 0, &often, nullptr);
  }
  ~Interruptions() {
    timer_delete(timer_);
    sigaction(SIGALRM, &action_before_, nullptr);
    sigaltstack(&stack_before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  std::vector<char> stack_ = std::vector<char>(1 << 16);
  stack_t stack_before_{};
  struct sigaction action_before_ {};
  timer_t timer_{};
};

}  // namespace

TEST_CASE("no signal is handled while a product uses the stack pointer for something else") {
  constexpr int64_t kSide = 256;
  constexpr long kNanoseconds = 200'000;  // less than a product takes
  constexpr int kSignals = 200;
  const auto product = make_tile({.M = kSide,
                                  .N = kSide,
                                  .K = kSide,
                                  .lda = kSide,
                                  .ldb = kSide,
                                  .ldc = kSide,
                                  .in = DType::f32,
                                  .out = DType::f32,
                                  .transpose_a = false,
                                  .transpose_b = false,
                                  .bias = false,
                                  .accumulate = false});
  const std::vector<float> a(kSide * kSide), b(kSide * kSide);
  std::vector<float> c(kSide * kSide);
  const Memory scratch(Device::cpu(), tile_scratch_bytes(*product));
  const test::DefaultSignals defaults;
  const Interruptions interruptions(kNanoseconds);
  while (on_stack + elsewhere < kSignals)
    run_tile(*product,
             {.c = c.data(), .a = a.data(), .b = b.data(), .bias = nullptr, .scratch = scratch.data()});
  CHECK(elsewhere.load() == 0);
}

#endif
