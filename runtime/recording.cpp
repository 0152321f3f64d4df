#include "runtime/recording.h"

#include <utility>

namespace flatshard {

int Recording::add_stream(std::string name, bool is_comm) {
  streams_.push_back({std::move(name), is_comm});
  return static_cast<int>(streams_.size()) - 1;
}

void Recording::add_op(int stream, bool on_host, const OpCall& op) {
  if (paused_) return;
  const auto [at, is_new] = op_numbers_.try_emplace(op, static_cast<int>(ops_.size()));
  if (is_new) ops_.push_back(op);
  add({Kind::op, on_host, stream, at->second});
}

void Recording::add_exchange(int stream, const ExchangeCall& exchange) {
  if (paused_) return;
  exchanges_.push_back(exchange);
  add({Kind::exchange, false, stream, static_cast<int>(exchanges_.size()) - 1});
}

void Recording::pause(bool paused) {
  paused_ = paused;
  if (items_.empty()) first_record_ = static_cast<int>(next_record_.size());
}

int Recording::add_record(int stream, int earlier) {
  const auto number = static_cast<int>(next_record_.size());
  next_record_.push_back(-1);
  if (!paused_ && earlier >= 0) next_record_[static_cast<size_t>(earlier)] = number;
  add({Kind::record, false, stream, number});
  return number;
}

int Recording::last_record(int record) const {
  int last = record;
  while (next_record_[static_cast<size_t>(last)] >= 0) last = next_record_[static_cast<size_t>(last)];
  return last;
}

void Recording::add_wait(int stream, int record) { add({Kind::wait, false, stream, record}); }

void Recording::begin_scope(int stream, std::string name) {
  if (paused_) return;
  scopes_.push_back(std::move(name));
  add({Kind::begin, false, stream, static_cast<int>(scopes_.size()) - 1});
}

void Recording::end_scope(int stream) { add({Kind::end, false, stream, 0}); }

}  // namespace flatshard
