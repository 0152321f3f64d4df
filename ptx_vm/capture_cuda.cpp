// Capture of streams, and the launches of graphs.

#include <algorithm>
#include <memory>
#include <utility>

#include <cuda_runtime_api.h>

#include "ptx_vm/capture.h"
#include "ptx_vm/state.h"

namespace flatshard::ptx_vm {
namespace {

std::vector<Capture*>& under_way() {
  static auto* const all = new std::vector<Capture*>;
  return *all;
}

[[noreturn]] void lose(Capture& capture, int code, const std::string& text) {
  capture.is_broken = true;
  throw CallError(code, text);
}

void check_whole(const Capture& capture) {
  if (capture.is_broken)
    throw CallError(cudaErrorStreamCaptureInvalidated,
                    "a call that cannot be captured has invalidated the capture");
}

size_t line_of(const Queue& queue) {
  const auto& queues = queue.captured.capture->queues;
  return static_cast<size_t>(std::find(queues.begin(), queues.end(), &queue) - queues.begin());
}

// Every node is before the place where the capture's first stream ends.
bool all_joined(const Capture& capture) {
  const std::vector<Node>& nodes = capture.work.nodes;
  std::vector<bool> is_before(nodes.size());
  std::vector<size_t> next = capture.origin->captured.nodes;
  while (!next.empty()) {
    const size_t node = next.back();
    next.pop_back();
    if (is_before[node]) continue;
    is_before[node] = true;
    next.insert(next.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return std::find(is_before.begin(), is_before.end(), false) == is_before.end();
}

}  // namespace

void begin_capture(Queue& queue) {
  if (queue.index == 0)
    throw CallError(cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured");
  if (queue.captured.capture) throw CallError(cudaErrorIllegalState, "the stream is already being captured");
  auto capture = std::make_shared<Capture>();
  capture->origin = &queue;
  capture->queues.push_back(&queue);
  capture->work.lines.push_back(queue.role);
  under_way().push_back(capture.get());
  queue.captured = {std::move(capture), {}};
}

CapturedWork end_capture(Queue& queue) {
  const std::shared_ptr<Capture> capture = queue.captured.capture;
  if (!capture) throw CallError(cudaErrorIllegalState, "the stream is not being captured");
  if (capture->origin != &queue)
    lose(*capture, cudaErrorStreamCaptureUnmatched, "the capture began on another stream");
  const bool joined = all_joined(*capture);
  for (Queue* captured : capture->queues) captured->captured = {};
  std::erase(under_way(), capture.get());
  capture->is_over = true;
  check_whole(*capture);
  if (!joined)
    throw CallError(cudaErrorStreamCaptureUnjoined,
                    "a stream that joined the capture has work that the origin stream never waits for");
  return std::move(capture->work);
}

void add_node(Queue& queue, std::string what, std::function<void(Activity&)> run) {
  CapturedPoint& at = queue.captured;
  check_whole(*at.capture);
  std::vector<Node>& nodes = at.capture->work.nodes;
  nodes.push_back({std::move(what), std::move(run), line_of(queue), std::move(at.nodes)});
  at.nodes = {nodes.size() - 1};
}

void follow(Queue& queue, const CapturedPoint& point) {
  Capture& capture = *point.capture;
  check_whole(capture);
  if (!queue.captured.capture) {
    if (capture.is_over)
      throw CallError(cudaErrorCapturedEvent, "the event was recorded in a capture that has ended");
    queue.captured.capture = point.capture;
    capture.queues.push_back(&queue);
    capture.work.lines.push_back(queue.role);
  }
  if (queue.captured.capture != point.capture)
    lose(*queue.captured.capture, cudaErrorStreamCaptureMerge, "the event belongs to another capture");
  queue.captured.nodes.insert(queue.captured.nodes.end(), point.nodes.begin(), point.nodes.end());
}

void refuse_captured(const Queue& queue, const char* call) {
  if (queue.captured.capture)
    lose(*queue.captured.capture, cudaErrorStreamCaptureUnsupported,
         str(call, " on a stream that is being captured"));
}

void refuse_while_capturing() {
  for (Capture* capture : under_way())
    lose(*capture, cudaErrorStreamCaptureUnsupported,
         "the host waits for all streams while one is being captured");
}

void refuse_from_outside(const Queue& queue) {
  if (queue.captured.capture)
    lose(*queue.captured.capture, cudaErrorStreamCaptureIsolation,
         "a captured stream waits for an event that was recorded outside the capture");
}

void refuse_default_stream() {
  for (Capture* capture : under_way())
    for (const Queue* queue : capture->queues)
      if (queue->is_blocking)
        lose(*capture, cudaErrorStreamCaptureImplicit,
             "work on the default stream, for which a captured stream would wait");
}

void refuse_memory_call(const char* call) {
  for (Capture* capture : under_way())
    if (capture->thread == std::this_thread::get_id())
      lose(*capture, cudaErrorStreamCaptureUnsupported, str(call, " from the thread that captures a stream"));
}

GraphLaunches::GraphLaunches(CapturedWork work) : work_(std::move(work)) {
  for (const WorkRole role : work_.lines) queues_.push_back(&streams().create(false, 0, role));
}

GraphLaunches::~GraphLaunches() {
  for (Queue* queue : queues_) streams().destroy(*queue);
}

// Launches are serialized, even on different streams.
void GraphLaunches::launch(Queue& queue) {
  for (const Queue* before : queues_) streams().wait(queue, before->milestone());
  const Milestone begin = queue.milestone();
  for (Queue* line : queues_) streams().wait(*line, begin);
  std::vector<Milestone> done;
  for (const Node& node : work_.nodes) {
    Queue& line = *queues_[node.line];
    for (const size_t before : node.after)
      if (work_.nodes[before].line != node.line) streams().wait(line, done[before]);
    done.push_back(streams().enqueue(line, node.what, node.run));
  }
  for (const Queue* line : queues_) streams().wait(queue, line->milestone());
  ++counters().graph_launches;
}

}  // namespace flatshard::ptx_vm
