#pragma once
// While a SignalsBlocked lives, no signal handler runs on its thread, not even one of a profiler or of MPI.
// Another thread handles a signal that arrives meanwhile, or this thread does afterwards. A fault ends the
// process without its handler.
//
// Code that keeps another address in the stack pointer needs this: the kernel would write a handler's frame
// there. A signal stack (SA_ONSTACK) would not help against handlers that libraries install without it.

#include <csignal>

namespace flatshard {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace flatshard
