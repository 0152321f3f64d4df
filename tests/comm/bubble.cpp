#include "tests/comm/bubble.h"

#include <chrono>
#include <iomanip>
#include <ostream>
#include <thread>

#include "comm/pipe.h"
#include "runtime/memory.h"
#include "train/setup/pipeline.h"

namespace flatshard::test {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kForward{20}, kBackward{40};
constexpr int64_t kMicroSteps = 8, kBytes = 1 << 16;

// A stage that executes its actions with buffers of its own for every message.
class SleepingStage {
 public:
  SleepingStage(World& world, PipelineSchedule schedule)
      : pipeline_{.stages = world.size(), .schedule = schedule},
        stage_(world.rank()),
        comms_(world.size(), false, false, [&](const char* name) { return make_communicator(world, name); }),
        memory_(Device::cpu(), 4 * kMicroSteps * kBytes),
        buffers_(4 * kMicroSteps) {
    for (int s = 0; s < world.size(); ++s) pipeline_.chunks.push_back({s, s + 1, s});
    actions_ = actions_of(pipeline_, stage_, kMicroSteps, 0);
    for (size_t i = 0; i < buffers_.size(); ++i)
      buffers_[i].message = {
          {memory_.data() ? static_cast<char*>(memory_.data()) + static_cast<int64_t>(i) * kBytes : nullptr,
           DType::u8,
           {kBytes},
           Device::cpu()}};
  }

  const Pipeline& pipeline() const { return pipeline_; }

  void run() {
    receive_for(actions_.front());
    for (size_t at = 0; at < actions_.size(); ++at) {
      if (at + 1 < actions_.size()) receive_for(actions_[at + 1]);
      const Action& action = actions_[at];
      if (receives(action)) pipe_.wait_arrived(compute_, buffer(action, true));
      std::this_thread::sleep_for(action.forward ? kForward : kBackward);
      if (!sends(action)) continue;
      Buffer& sent = buffer(action, false);
      pipe_.send(flow(action), next(action, 1), compute_, sent, sent.message);
    }
    streams_.sync_all();
  }

 private:
  struct Buffer : PipeBuffer {
    Message message;
  };

  static Flow flow(const Action& a) { return a.forward ? Flow::activations : Flow::gradients; }
  int next(const Action& a, int step) const { return stage_ + (a.forward ? step : -step); }
  bool exists(int stage) const { return stage >= 0 && stage < pipeline_.stages; }
  bool sends(const Action& a) const { return exists(next(a, 1)); }
  bool receives(const Action& a) const { return exists(next(a, -1)); }
  Buffer& buffer(const Action& a, bool in) {
    return buffers_[static_cast<size_t>(4 * a.micro + (a.forward ? 0 : 2) + (in ? 0 : 1))];
  }
  void receive_for(const Action& a) {
    if (!receives(a)) return;
    Buffer& received = buffer(a, true);
    pipe_.receive(flow(a), next(a, -1), received, received.message);
  }

  Pipeline pipeline_;
  int stage_;
  PipeCommunicators comms_;
  Memory memory_;
  std::vector<Buffer> buffers_;
  std::vector<Action> actions_;
  StreamSet streams_{Device::cpu(), {.order = StreamOrder::concurrent}};
  Stream& compute_ = streams_.add("compute");
  Pipe pipe_{comms_, streams_, false};
};

}  // namespace

void print_bubbles(World& world, std::ostream& out) {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe, PipelineSchedule::sequential}) {
    SleepingStage stage(world, schedule);
    world.barrier("the start");
    const auto begin = std::chrono::steady_clock::now();
    stage.run();
    world.barrier("the end");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const std::chrono::duration<double> busy = kMicroSteps * (kForward + kBackward);
    if (world.rank() == 0)
      out << "bubble " << schedule << ", " << world.size() << " stages, " << kMicroSteps
          << " micro-batches: " << std::fixed << std::setprecision(3) << 1 - busy / took << ", by formula "
          << bubble_of(stage.pipeline(), kMicroSteps) << std::endl;
  }
}

}  // namespace flatshard::test
