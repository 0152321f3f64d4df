#pragma once
// A hash table from pairs of token ids to values, for the inner loops of encoding and training: open
// addressing in one array, at most half full.

#include <cstdint>
#include <vector>

namespace flatshard {

inline uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

template <class Value>
class PairTable {
 public:
  explicit PairTable(size_t expected = 0) {
    size_t entries = 16;
    while (entries < 2 * expected) entries *= 2;
    entries_.resize(entries);
  }

  // Null if the pair is not in the table.
  const Value* find(uint64_t key) const {
    const Entry& entry = entries_[place(key)];
    return entry.key == key ? &entry.value : nullptr;
  }
  // The value of the pair; a missing pair is added. References are valid until the next new pair.
  Value& operator[](uint64_t key) {
    size_t at = place(key);
    if (entries_[at].key != key) {
      if (2 * ++count_ > entries_.size()) {
        grow();
        at = place(key);
      }
      entries_[at].key = key;
    }
    return entries_[at].value;
  }
  size_t size() const { return count_; }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Entry& entry : entries_)
      if (entry.key != kEmpty) visit(entry.key, entry.value);
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // never a pair of ids, which are not negative
  struct Entry {
    uint64_t key = kEmpty;
    Value value{};
  };

  size_t place(uint64_t key) const {
    const size_t mask = entries_.size() - 1;
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    size_t at = (hash ^ hash >> 32) & mask;
    while (entries_[at].key != key && entries_[at].key != kEmpty) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    for (Entry& entry : old)
      if (entry.key != kEmpty) entries_[place(entry.key)] = std::move(entry);
  }

  std::vector<Entry> entries_;
  size_t count_ = 0;
};

}  // namespace flatshard
