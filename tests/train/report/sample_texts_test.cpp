#include "train/report/sample_texts.h"

#include <filesystem>

#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

const std::string kPath = "sample_texts.jsonl";

}  // namespace

TEST_CASE("samples are read back as they were written, without an incomplete last line") {
  const std::vector<SampleText> first{{2, "a \"b\"\n", "\xC3\xA9"}}, second{{4, "c", "<d>"}, {4, "e", ""}};
  {
    SamplesFile file(kPath, first);
    file.write(second);
  }
  const std::vector<SampleText> all{first[0], second[0], second[1]};
  CHECK(read_samples(kPath) == all);
  CHECK(samples_before(3, kPath) == first);
  write_whole_file(kPath, read_whole_file(kPath, 1 << 20) + "{\"step\":6,\"pro");
  CHECK(read_samples(kPath) == all);
  write_whole_file(kPath, "{\"step\":6}\n");
  CHECK_THROWS_WITH(read_samples(kPath), doctest::Contains("sample_texts.jsonl:1: is not a sample"));
  CHECK(samples_before(9, kPath).empty());
  std::filesystem::remove(kPath);
  CHECK(read_samples(kPath).empty());
}

TEST_CASE("bytes that are not UTF-8 do not end a run") {
  SamplesFile(kPath).write({{1, "p", "\xFF"}});
  CHECK(read_samples(kPath).front().text == "\xEF\xBF\xBD");
}

TEST_CASE("a page shows the newest samples open, at most 50 evaluations, and as text") {
  CHECK(samples_html({}).empty());
  std::vector<SampleText> samples;
  for (int64_t step = 1; step <= 51; ++step) samples.push_back({step, "<p>", str("text ", step)});
  const std::string html = samples_html(samples);
  const size_t newest = html.find("<details open>\n<summary>Samples of step 51</summary>");
  REQUIRE(newest != html.npos);
  CHECK(newest < html.find("Samples of step 50<"));
  CHECK(html.find("<td>&lt;p&gt;</td><td>text 51</td>") != html.npos);
  CHECK(html.find("text 2<") != html.npos);
  CHECK(html.find("text 1<") == html.npos);
  CHECK(html.find("Earlier samples are in samples.jsonl") != html.npos);
}
