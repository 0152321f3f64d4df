#pragma once
// The work that a planning run drops, in the order of its calls: ops with their shapes and costs, exchanges
// between ranks, records of events and waits for them, each with its stream. A simulator that gives every
// item a duration can play the step without a device (planner/simulate).

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/dtype.h"

namespace flatshard {

// One call of an op. Calls that compare equal take equally long.
struct OpCall {
  // The sides of a copy between a GPU and its host; everything else stays on one side.
  enum class Path : uint8_t { none, to_device, to_host };

  std::string_view name;  // name of the op in a trace; a literal
  // The other sizes on which the time depends: the shape of a tensor, or M, N, K and flags of a product.
  std::array<int64_t, 7> shape{};
  DType dtype = DType::f32;
  Path path = Path::none;
  double flops = 0, bytes = 0;

  auto operator<=>(const OpCall&) const = default;
};

// One call on a communicator.
struct ExchangeCall {
  const char *communicator, *verb, *label;  // names as in a Collective
  int64_t bytes = 0;                        // size of the larger tensor
  int ranks = 1;                            // size of the communicator
  int peer = -1;  // index of the peer in the communicator for a message; -1: a collective
};

class Recording {
 public:
  enum class Kind : uint8_t { op, exchange, record, wait, begin, end };
  struct Item {
    Kind kind;
    bool on_host;  // the work runs on the host side of the stream
    int stream;
    // op, exchange, begin: an index into ops(), exchanges() or scopes(); record, wait: the number of the
    // record.
    int index;
  };
  struct StreamInfo {
    std::string name;
    bool is_comm;
  };

  int add_stream(std::string name, bool is_comm);
  void add_op(int stream, bool on_host, const OpCall& op);
  void add_exchange(int stream, const ExchangeCall& exchange);
  // Returns the number of the record. `earlier` is the number of the event's previous record, or -1.
  int add_record(int stream, int earlier);
  void add_wait(int stream, int record);
  // The begin and end of a scope, such as a layer: a span of the trace that contains others.
  void begin_scope(int stream, std::string name);
  void end_scope(int stream);

  // pause(true) stops the recording until pause(false): some parts of a plan do not belong to a step.
  void pause(bool paused);

  // The first number of a record among the items. Records with smaller numbers came before the first item.
  int first_record() const { return first_record_; }
  // The last record of the same event. When the items repeat, a wait for a record from before the first item
  // becomes a wait for this one.
  int last_record(int record) const;

  const std::vector<StreamInfo>& streams() const { return streams_; }
  const std::vector<Item>& items() const { return items_; }
  const std::vector<OpCall>& ops() const { return ops_; }  // distinct calls
  const std::vector<ExchangeCall>& exchanges() const { return exchanges_; }
  const std::vector<std::string>& scopes() const { return scopes_; }

 private:
  void add(Item item) {
    if (!paused_) items_.push_back(item);
  }

  bool paused_ = false;
  int first_record_ = 0;
  std::vector<int> next_record_;  // for each record: the next record of the same event, or -1

  std::vector<StreamInfo> streams_;
  std::vector<Item> items_;
  std::vector<OpCall> ops_;
  std::map<OpCall, int> op_numbers_;
  std::vector<ExchangeCall> exchanges_;
  std::vector<std::string> scopes_;
};

}  // namespace flatshard
