#pragma once
// starts.jsonl of a run folder records what produced its results: one line of JSON for each start of the run,
// the first and every resume:
//   {"step": 0, "time": 1764340000.123, "version": "0.1, revision 5a6d644", "command": "train my.toml",
//    "ranks": 4, "hosts": [{"name": "node1", "ranks": 4, "devices": "4 x NVIDIA H200"}]}
// `step` counts the steps completed before the start, and `time` is in seconds since 1970.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard {

struct StartHost {
  std::string name;
  int64_t ranks = 0;
  std::string devices;  // "4 x NVIDIA H200", "AMD EPYC 9654, 2 x 8 threads"
  bool operator==(const StartHost&) const = default;
};

struct StartRecord {
  int64_t step = 0;
  double time = 0;
  std::string version, command;
  int64_t ranks = 0;
  std::vector<StartHost> hosts{};
  bool operator==(const StartRecord&) const = default;
};

// The device on which a rank computes.
struct RankDevice {
  std::string host;
  std::string name;  // name of the GPU or processor
  std::string gpu;   // the identity of the GPU; "" on a CPU
  int64_t threads = 0;
};

// The hosts in the order of their first ranks. GPUs that ranks share count once.
std::vector<StartHost> hosts_of(const std::vector<RankDevice>& ranks);

// The text of starts.jsonl.
std::string lines_of(const std::vector<StartRecord>& starts);

// The starts of a run folder. Empty if it has no starts.jsonl, as in folders of older versions. An Error
// names the file and line that lines_of() cannot have written.
std::vector<StartRecord> read_starts(const std::string& path);

// The starts that made the steps up to one at which a run resumes. A damaged file costs a warning.
std::vector<StartRecord> starts_before(int64_t step, const std::string& path);

// "node1: 4 x NVIDIA H200; node2: 4 x NVIDIA H200"; equal hosts are "8 hosts, each 4 x NVIDIA H200".
std::string describe_hosts(const std::vector<StartHost>& hosts);

// A table as HTML, with a row for each start; "" if there are none.
std::string starts_html(const std::vector<StartRecord>& starts);

}  // namespace flatshard
