#pragma once
// The work that a planning run drops, in the order of its calls: ops with their shapes and costs, exchanges
// between ranks, records of events and waits for them, each with its stream. A simulator that gives every
// item a duration can play the step without a device (train/simulate).

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

  std::string_view name;  // as in a trace; a literal
  // What the time depends on besides flops and bytes: the shape of a tensor, or M, N, K and flags of a
  // product.
  std::array<int64_t, 7> shape{};
  DType dtype = DType::f32;
  Path path = Path::none;
  double flops = 0, bytes = 0;

  auto operator<=>(const OpCall&) const = default;
};

// One call on a communicator.
struct ExchangeCall {
  const char *communicator, *verb, *label;  // as in a Collective
  int64_t bytes = 0;                        // of the larger tensor
  int ranks = 1;                            // of the communicator
  int peer = -1;                            // of a message: its index in the communicator
};

class Recording {
 public:
  enum class Kind : uint8_t { op, exchange, record, wait, begin, end };
  struct Item {
    Kind kind;
    bool on_host;  // work that the stream leaves to the host
    int stream;
    // op: of ops(); exchange: of exchanges(); record and wait: the number of the record; begin: of scopes().
    int index;
  };
  struct StreamInfo {
    std::string name;
    bool is_comm;
  };

  int add_stream(std::string name, bool is_comm);
  void add_op(int stream, bool on_host, const OpCall& op);
  void add_exchange(int stream, const ExchangeCall& exchange);
  // Returns the number of the record. `earlier` is that of the same event's record before, or -1.
  int add_record(int stream, int earlier);
  void add_wait(int stream, int record);
  // Around the work of a layer, as a span of a trace that has others inside.
  void begin_scope(int stream, std::string name);
  void end_scope(int stream);

  // Until it is called again with false, nothing is recorded: for parts of a plan that are no step.
  void pause(bool paused);

  // Smaller numbers are of records before the first item.
  int first_record() const { return first_record_; }
  // The last record of the event of which a record is given. What waits for a record from before the first
  // item waits, when the items repeat, for the last one.
  int last_record(int record) const;

  const std::vector<StreamInfo>& streams() const { return streams_; }
  const std::vector<Item>& items() const { return items_; }
  const std::vector<OpCall>& ops() const { return ops_; }  // no two are equal
  const std::vector<ExchangeCall>& exchanges() const { return exchanges_; }
  const std::vector<std::string>& scopes() const { return scopes_; }

 private:
  void add(Item item) {
    if (!paused_) items_.push_back(item);
  }

  bool paused_ = false;
  int first_record_ = 0;
  std::vector<int> next_record_;  // by number: of the same event, or -1

  std::vector<StreamInfo> streams_;
  std::vector<Item> items_;
  std::vector<OpCall> ops_;
  std::map<OpCall, int> op_numbers_;
  std::vector<ExchangeCall> exchanges_;
  std::vector<std::string> scopes_;
};

}  // namespace flatshard
