#pragma once
// samples.jsonl of a run folder: the texts that the model wrote at evaluations, one line of JSON for each:
//   {"step": 200, "prompt": "Once", "text": " upon a time"}

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/appended_file.h"

namespace flatshard {

struct SampleText {
  int64_t step = 0;
  std::string prompt, text;
  bool operator==(const SampleText&) const = default;
};

class SamplesFile {
 public:
  // Replaces the file by these lines; an Error if it cannot be written.
  explicit SamplesFile(const std::string& path, const std::vector<SampleText>& lines = {});
  void write(const std::vector<SampleText>& samples);  // never fails

 private:
  AppendedFile file_;
};

// The samples of a run, which may be alive or have crashed: an incomplete last line is ignored. None if there
// is no such file. An Error names the file and line that write() cannot have written.
std::vector<SampleText> read_samples(const std::string& path);

// The samples up to a step, for a run that resumes there. A damaged file costs a warning.
std::vector<SampleText> samples_before(int64_t step, const std::string& path);

// The samples as HTML, the newest first; each prompt has a row. "" if there are none.
std::string samples_html(const std::vector<SampleText>& samples);

}  // namespace flatshard
