#include "comm/shared_sums.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "comm/watchdog.h"
#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "runtime/log.h"
#include "runtime/reason.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr std::chrono::hours kLongest{24 * 30};
constexpr int64_t kWorthALine = int64_t{8} << 30;  // a log line is worth it: reading takes seconds

// A version of a file as ranks compare it, and whether one of them needs its sums.
struct Entry {
  std::string key;  // begins with the size
  bool is_needed;
};

// The lists that ranks exchange: 0 or 1, the key and a zero byte for each file.
std::string text_of(const std::vector<Entry>& entries) {
  std::string text;
  for (const Entry& entry : entries) text += str(entry.is_needed ? '1' : '0', entry.key, '\0');
  return text;
}

std::vector<Entry> parsed(const std::string& text) {
  std::vector<Entry> entries;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\0', at);
    entries.push_back({text.substr(at + 1, end - at - 1), text[at] == '1'});
    at = end + 1;
  }
  return entries;
}

// The version of a file; nullopt if it cannot be opened.
std::optional<FileVersion> version_at(const std::string& path) {
  try {
    return version_of(InputFile(path));
  } catch (const Error&) {
    return {};
  }
}

std::string key_of(const FileVersion& v) {
  return str(v.size, ' ', v.modified, ' ', v.changed, ' ', v.inode, ' ', v.path);
}

// The blocks of a file that one reader sums: first, first + every, ...
struct Share {
  int64_t first, every, blocks;
  int64_t count() const { return std::max<int64_t>(0, (blocks - first + every - 1) / every); }
};

// The division of the needed files among the ranks.
class Division {
 public:
  explicit Division(const std::vector<std::string>& lists) {
    for (const std::string& list : lists) {
      of_ranks_.push_back(parsed(list));
      for (const Entry& entry : of_ranks_.back()) {
        readers_[entry.key].push_back(of_ranks_.size() - 1);
        if (entry.is_needed) needed_.insert(entry.key);
      }
    }
  }

  const std::set<std::string>& needed() const { return needed_; }
  // The files that this rank reads, in the order of its list, each with its share.
  std::vector<std::pair<std::string, Share>> of_rank(size_t rank) const {
    std::vector<std::pair<std::string, Share>> shares;
    for (const Entry& entry : of_ranks_[rank]) {
      if (!needed_.contains(entry.key)) continue;
      const std::vector<size_t>& readers = readers_.at(entry.key);
      const int64_t bytes = std::stoll(entry.key);
      shares.emplace_back(entry.key,
                          Share{.first = std::find(readers.begin(), readers.end(), rank) - readers.begin(),
                                .every = std::ssize(readers),
                                .blocks = (bytes + kSumBlockBytes - 1) / kSumBlockBytes});
    }
    return shares;
  }

 private:
  std::vector<std::vector<Entry>> of_ranks_;
  std::map<std::string, std::vector<size_t>> readers_;
  std::set<std::string> needed_;
};

struct OpenFile {
  OpenFile(const std::string& path, FileVersion of)
      : file(path),
        version(std::move(of)),
        sums(static_cast<size_t>((version.size + kSumBlockBytes - 1) / kSumBlockBytes)) {}

  InputFile file;
  FileVersion version;
  FileSums sums;
};

constexpr char kDone = '=', kFailed = '!';

// The sums of this rank's shares, or the reason why it has none.
std::string own_sums(const std::vector<std::pair<std::string, Share>>& shares,
                     const std::map<std::string, OpenFile>& files, int64_t& blocks_read) {
  try {
    std::string text(1, kDone);
    for (const auto& [key, share] : shares) {
      const FileSums sums = sum_blocks(files.at(key).file, share.first, share.every);
      blocks_read += std::ssize(sums);
      text.append(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(uint64_t));
    }
    return text;
  } catch (const std::exception& error) {
    return kFailed + reason_of(error);
  }
}

// Copies the sums of a rank's shares to the files that this rank also reads.
void take_sums(const std::string& text, const std::vector<std::pair<std::string, Share>>& shares,
               std::map<std::string, OpenFile>& files) {
  size_t at = 0;
  for (const auto& [key, share] : shares) {
    const auto found = files.find(key);
    for (int64_t i = 0; i < share.count(); ++i, at += sizeof(uint64_t)) {
      check(at + sizeof(uint64_t) <= text.size(), "a rank has sent too few checksums of files");
      if (found == files.end()) continue;
      std::memcpy(&found->second.sums[static_cast<size_t>(share.first + i * share.every)], text.data() + at,
                  sizeof(uint64_t));
    }
  }
}

}  // namespace

SharedSums::SharedSums(World& world)
    : rank_(static_cast<size_t>(world.rank())), gather_([&world](const std::string& text) {
        const Watchdog* const watched = world.watchdog();
        const std::chrono::seconds usual = watched ? world.collective_limit() : kLongest;
        world.limit_collectives(kLongest);
        std::vector<std::string> all = world.all_gather_texts(text, "checksums of files");
        world.limit_collectives(usual);
        return all;
      }) {}

bool SharedSums::are_same(const std::vector<std::string>& paths) const {
  std::string text;
  for (const std::string& path : paths)
    if (const std::optional<FileVersion> version = version_at(path)) text += key_of(*version) + '\0';
  const std::vector<std::string> all = gather_(text);
  return std::count(all.begin(), all.end(), all.front()) == std::ssize(all);
}

void SharedSums::add(const std::vector<std::string>& paths, bool unless_kept) {
  std::map<std::string, OpenFile> files;
  std::vector<Entry> mine;
  for (const std::string& path : paths) {
    const std::optional<FileVersion> version = version_at(path);
    if (!version || version->size <= kSumBlockBytes) continue;
    const std::string key = key_of(*version);
    if (files.try_emplace(key, path, *version).second)
      mine.push_back({key, !unless_kept || is_to_be_hashed(path)});
  }
  const Division division(gather_(text_of(mine)));
  if (division.needed().empty()) return;
  int64_t bytes = 0;
  for (const std::string& key : division.needed()) bytes += std::stoll(key);
  if (bytes >= kWorthALine) log_info("reading ", human_bytes(bytes), " of inputs for their checksums");
  const std::vector<std::string> texts = gather_(own_sums(division.of_rank(rank_), files, blocks_read_));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    check(texts[rank].front() == kDone, rank == 0 ? "" : str("on rank ", rank, ": "), texts[rank].substr(1));
    take_sums(texts[rank].substr(1), division.of_rank(rank), files);
  }
  for (const auto& [key, share] : division.of_rank(rank_)) {
    OpenFile& of = files.at(key);
    if (version_of(of.file) != of.version) continue;  // the file was changed meanwhile
    if (unless_kept && is_to_be_hashed(of.file.path())) keep_hash(of.version, of.sums);
    known_.add(of.version, std::move(of.sums));
  }
}

}  // namespace flatshard
