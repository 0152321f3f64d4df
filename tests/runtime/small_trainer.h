#pragma once
// A miniature sharded training loop, for tests of streams on any device. It has three streams: layers are
// gathered into one ring of slots, and their gradients are reduced from another. Every record and wait
// between the streams is a numbered site that can be left out. Released slots are filled with NaN.

#include <array>
#include <vector>

#include "runtime/memory.h"
#include "runtime/stream.h"

namespace flatshard::test {

class SmallTrainer {
 public:
  static constexpr int kSites = 12;
  static constexpr int kNone = -1;

  SmallTrainer(Device device, StreamOptions options, int left_out);
  // Trains a few steps and returns the shards, as a checkpoint would read them.
  std::vector<float> train();

 private:
  static constexpr int kUnits = 6, kSlots = 2, kSteps = 2;

  Tensor make(int64_t size, float value, float step = 0.0f);
  int gather(int unit);
  void forward(int unit);
  void backward(int unit);
  void update(int step);
  void record(int site, Stream& stream, Event& event);
  void wait(int site, Stream& stream, const Event& event);

  int left_out_;
  std::vector<Memory> memory_;
  StreamSet streams_;
  Stream &compute_, &gather_, &reduce_;
  std::array<Event, kSlots> slot_free_, gathered_, gradient_free_, gradient_ready_;
  Event reduced_, updated_, read_;
  std::array<Tensor, kUnits> shard_, m_, v_, gradient_, result_;
  std::array<Tensor, kUnits + 1> x_;
  std::array<Tensor, kSlots> slot_, gradient_slot_;
  Tensor stale_, rstd_, one_;
  int turn_ = 0;
};

}  // namespace flatshard::test
