#pragma once
// An event file of TensorBoard: the metrics of a run as scalars under the names of metrics.jsonl. A file is a
// sequence of records:
//   uint64 size, uint32 masked CRC-32C of the size, the bytes, uint32 masked CRC-32C of the bytes
// in little-endian order; the mask rotates the sum right by 15 bits and adds 0xa282ead8. The bytes are an
// Event in the encoding of protocol buffers, of which these fields are used:
//   Event       1 double wall_time, 2 int64 step, 3 string file_version, 5 Summary, 7 SessionLog
//   Summary     1 repeated Value          Value  1 string tag, 2 float simple_value
//   SessionLog  1 enum status (1 = START)
// The first event of a file has only a wall time and the file version "brain.Event:2".

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/appended_file.h"
#include "train/report/metrics.h"

namespace flatshard {

// Records of one event each, with their frames. Times are in seconds since 1970.
std::string version_record(double time);
// Tells TensorBoard to discard the events of earlier files from this step on.
std::string start_record(double time, int64_t step);
// Every number of the step except its position and time. A skipped step has only "skipped": its numbers would
// replace the numbers of the last step with an update, which has the same number.
std::string scalars_record(double time, const StepMetrics& m);

class EventFile {
 public:
  // Creates a new file in the folder, which is created if needed. A run that starts anew removes the folder's
  // event files. A run that resumes after the step of the last of these lines continues them; if there are
  // none, the lines are written first.
  EventFile(const std::string& folder, const std::vector<StepMetrics>& lines_before);
  void write(const StepMetrics& m);  // never fails

 private:
  AppendedFile file_;
};

}  // namespace flatshard
