#pragma once
// The first stop request that any rank received; the same on all ranks.

namespace flatshard {

struct FirstStop {
  int rank = 0, signal = 0;  // signal: 0 if there is none

  // Call on all ranks with the same arguments; signal 0 is none.
  void note(int from, double received) {
    if (received != 0 && signal == 0) *this = {from, static_cast<int>(received)};
  }
};

}  // namespace flatshard
