// A step with pipeline stages: the passes of step.cpp in the order of the schedule (train/setup/pipeline.h),
// with messages between them. A rank's layers form one chunk, or several; a pass takes a micro-batch through
// one of them. Activations go to the next chunk, gradients to the chunk before.

#include "train/step/engine.h"

namespace flatshard {

// Each message is received one pass ahead.
void Engine::accumulate_in_stages(const Schedule& schedule) {
  receive_for(schedule.actions.front());
  for (size_t at = 0; at < schedule.actions.size(); ++at) {
    if (at + 1 < schedule.actions.size()) receive_for(schedule.actions[at + 1]);
    const Pass pass = schedule.pass(at);
    pass.action.forward ? forward_in_stage(pass) : backward_in_stage(pass);
  }
  // Later work may use the memory of the buffers.
  buffers_.each_buffer([&](PipeBuffer& buffer) { pipe_.wait_sent(compute_, buffer); });
}

// Counts of experts travel with activations, so that the last chunk has those of all blocks, and these with
// gradients.
Message Engine::message_between(const Action& action, int chunk, const LaneTensors& buffer) const {
  Message message = buffers_.message_between(chunk, buffer);
  const int64_t lanes = setup_.batching.lanes;
  if (!lane_counts_.empty())
    message.push_back(lane_counts_.slice(action.micro * lanes, (action.micro + 1) * lanes));
  return message;
}

void Engine::receive_for(const Action& action) {
  if (action.forward && action.chunk > 0) {
    LaneTensors& input = buffers_.input(action);
    pipe_.receive(activations_from(action.chunk - 1), stage_of(action.chunk - 1), input,
                  message_between(action, action.chunk - 1, input));
  }
  if (!action.forward && action.chunk < setup_.pipeline.last_chunk()) {
    LaneTensors& gradient = buffers_.gradient(action);
    pipe_.receive(gradients_to(action.chunk), stage_of(action.chunk + 1), gradient,
                  message_between(action, action.chunk, gradient));
  }
}

void Engine::forward_in_stage(const Pass& pass) {
  const Action& action = pass.action;
  const bool sends = action.chunk < setup_.pipeline.last_chunk();
  buffers_.open(action);
  if (action.chunk > 0) pipe_.wait_arrived(compute_, buffers_.input(action));
  if (sends) pipe_.wait_sent(compute_, buffers_.output(action));
  forward(pass);
  if (sends)
    pipe_.send(activations_from(action.chunk), stage_of(action.chunk + 1), compute_, buffers_.output(action),
               message_between(action, action.chunk, buffers_.output(action)));
  // The input of a trained chunk is kept until its backward pass.
  if (setup_.pipeline.trains(action.chunk, whole_.first_trained_layer())) return;
  if (action.chunk > 0) pipe_.release(compute_, buffers_.input(action));
  buffers_.close(compute_, action);
}

void Engine::backward_in_stage(const Pass& pass) {
  const Action& action = pass.action;
  LaneTensors& gradient = buffers_.gradient(action);
  pipe_.wait_arrived(compute_, gradient);
  pipe_.wait_sent(compute_, gradient);  // the head overwrites it
  if (recomputes_layers() && action.chunk < setup_.pipeline.last_chunk())
    pipe_.wait_sent(compute_, buffers_.output(action));
  backward(pass);
  if (setup_.pipeline.chunks[static_cast<size_t>(action.chunk)].first > whole_.first_trained_layer())
    pipe_.send(gradients_to(action.chunk - 1), stage_of(action.chunk - 1), compute_, gradient,
               message_between(action, action.chunk - 1, gradient));
  pipe_.release(compute_, gradient);
  if (action.chunk > 0) pipe_.release(compute_, buffers_.input(action));
  buffers_.close(compute_, action);
}

// The stage of a chunk.
int Engine::stage_of(int chunk) const { return setup_.pipeline.chunks[static_cast<size_t>(chunk)].stage; }

// The flows between a chunk and the next one.
Flow Engine::activations_from(int chunk) const {
  return setup_.pipeline.embeds_apart && chunk == 0 ? Flow::embedded : Flow::activations;
}

Flow Engine::gradients_to(int chunk) const {
  return setup_.pipeline.embeds_apart && chunk == 0 ? Flow::embedded_gradients : Flow::gradients;
}

}  // namespace flatshard
