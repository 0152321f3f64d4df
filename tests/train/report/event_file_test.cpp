#include "train/report/event_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "runtime/crc32c.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

const std::string kFolder = "event_file_test";

std::vector<std::string> event_files() {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(kFolder)) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string bytes_of(const std::string& path) { return read_whole_file(path, 1 << 20); }

// The lengths of a file's records, by their frames.
std::vector<uint64_t> records_of(const std::string& bytes) {
  std::vector<uint64_t> lengths;
  for (size_t at = 0; at < bytes.size(); at += 8 + 4 + lengths.back() + 4) {
    REQUIRE(at + 8 <= bytes.size());
    lengths.emplace_back();
    std::memcpy(&lengths.back(), bytes.data() + at, 8);
  }
  return lengths;
}

StepMetrics step(int64_t number) { return {.step = number, .data_step = number, .loss = 2, .time = 100.5}; }

}  // namespace

TEST_CASE("CRC-32C has its published check value") {
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c("") == 0);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
}

TEST_CASE("events have the bytes that TensorBoard's own writer gives them") {
  const std::string golden = std::string(kSourceDir) + "/tests/golden/event_file";
  std::string bytes = version_record(1763889000.25) + start_record(1763889000.25, 300);
  for (const StepMetrics& m : read_metrics(golden + ".jsonl")) bytes += scalars_record(*m.time, m);
  CHECK(bytes == bytes_of(golden + ".tfevents"));
}

TEST_CASE("an event file can be read up to the last step as soon as the step is written") {
  fs::remove_all(kFolder);
  EventFile file(kFolder, {});
  REQUIRE(event_files().size() == 1);
  CHECK(event_files().front().find("/events.out.tfevents.") != std::string::npos);
  CHECK(records_of(bytes_of(event_files().front())).size() == 1);
  for (int64_t i = 1; i <= 3; ++i) {
    file.write(step(i));
    const std::string bytes = bytes_of(event_files().front());
    CHECK(records_of(bytes).size() == static_cast<size_t>(i) + 1);
    CHECK(bytes.ends_with(scalars_record(100.5, step(i))));
  }
}

TEST_CASE("a resume adds a file that discards later steps of earlier ones, and a new run removes those") {
  fs::remove_all(kFolder);
  fs::create_directory(kFolder);
  const std::string earlier = kFolder + "/events.out.tfevents.1.host.1";
  write_whole_file(earlier, version_record(1) + scalars_record(1, step(1)));
  write_whole_file(kFolder + "/notes.txt", "kept");
  const std::string before = bytes_of(earlier);
  {
    EventFile file(kFolder, {step(6), step(7)});
    CHECK(bytes_of(earlier) == before);
    REQUIRE(event_files().size() == 3);
    constexpr size_t kBeforeStep = 8 + 4 + 9, kStepAndStart = 2 + 4;  // after the frame and the wall time
    const std::string resumed = bytes_of(event_files()[1]);
    CHECK(records_of(resumed).size() == 2);
    CHECK(resumed.find(start_record(1, 8).substr(kBeforeStep, kStepAndStart)) != std::string::npos);
  }
  EventFile file(kFolder, {});
  const std::vector<std::string> left = event_files();
  CHECK(left.size() == 2);
  CHECK_FALSE(fs::exists(earlier));
  CHECK(fs::exists(kFolder + "/notes.txt"));
}

TEST_CASE("a run resumed in another folder has the earlier steps in its event file") {
  fs::remove_all(kFolder);
  EventFile file(kFolder, {step(6), step(7)});
  const std::string bytes = bytes_of(event_files().front());
  CHECK(records_of(bytes).size() == 3);
  CHECK(bytes.ends_with(scalars_record(100.5, step(6)) + scalars_record(100.5, step(7))));
}

TEST_CASE("a folder that cannot have event files is an error that names it") {
  fs::remove_all(kFolder);
  write_whole_file(kFolder, "a file");
  CHECK(test::error_of([] {
          EventFile file(kFolder, {});
        }).starts_with(kFolder + ": cannot write event files: "));
  fs::remove(kFolder);
}
