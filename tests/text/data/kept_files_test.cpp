#include "text/data/kept_files.h"

#include <filesystem>
#include <fstream>

#include "runtime/fingerprint.h"
#include "tests/test.h"
#include "text/data/dataset.h"
#include "text/data/token_column.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// The token file that a run keeps of a text of bytes.
std::string make_tokens(const std::string& text, const DatasetOptions& options = {}) {
  const std::string tokens = token_file_of(text, options);
  make_token_file(text, options, tokens, {});
  return tokens;
}

std::string make_reference(const std::string& tokens) {
  const std::string identity = "{\"weights\":\"w\",\"tokens\":\"" + fingerprint({tokens}) + "\"}";
  const std::string path = kept_path(tokens, identity, ".reference");
  make_kept_folder(path, "");
  write_token_column(path, identity, std::vector<float>(3));
  return path;
}

std::string why_unused(const std::string& folder, const std::string& path) {
  for (const KeptFile& file : kept_files(folder))
    if (file.path == path) return file.why_unused;
  return "not listed";
}

}  // namespace

TEST_CASE("kept files are in one folder beside what they were made of") {
  CHECK(kept_path("a/b.jsonl", "x", ".tok").starts_with("a/.flatshard/b.jsonl."));
  CHECK(kept_path("b.jsonl", "x", ".tok").starts_with(".flatshard/b.jsonl."));
  CHECK(kept_path("b.jsonl", "x", ".tok") != kept_path("b.jsonl", "y", ".tok"));
  const std::string tokens = kept_path("a/b.jsonl", "x", ".tok");
  CHECK(is_kept(tokens));
  CHECK_FALSE(is_kept("a/b.tok"));
  CHECK(text_of_kept(tokens) == "a/b.jsonl");
  CHECK(kept_path(tokens, "x", ".reference").starts_with(tokens + "."));
  CHECK(remedy_of(tokens) == "remove " + tokens + ": the next run makes it again");
  CHECK(remedy_of("a/b.tok") == "make it again with prepare");
}

TEST_CASE("the list of kept files says which no run can use, and why") {
  fs::remove_all("kept");
  fs::create_directory("kept");
  write("kept/a.jsonl", "{\"text\":\"one text\"}\n");
  write("kept/b.jsonl", "{\"text\":\"another\"}\n");
  write("kept/notes.tok", "a file of the user");
  const std::string a = make_tokens("kept/a.jsonl"), b = make_tokens("kept/b.jsonl"),
                    reference = make_reference(a);
  fs::copy_file(a, "kept/mine.tok");
  const std::string of_mine = make_reference("kept/mine.tok");
  const std::string earlier = earlier_token_file_of("kept/a.jsonl", {});
  fs::copy_file(a, earlier);
  const std::vector<KeptFile> all = kept_files("kept");
  CHECK(all.size() == 5);
  for (const KeptFile& file : all) CHECK(file.bytes == static_cast<int64_t>(fs::file_size(file.path)));
  for (const std::string& path : {a, b, reference, of_mine}) CHECK(why_unused("kept", path) == "");
  CHECK(why_unused("kept/", earlier) == "an earlier version made it");

  write("kept/a.jsonl", "{\"text\":\"two text\"}\n");
  CHECK(why_unused("kept", a) == "its text has changed");
  write("kept/a.jsonl", "{\"text\":\"one text\"}\n");
  CHECK(why_unused("kept", a) == "");
  fs::rename("kept/b.jsonl", "kept/c.jsonl");
  CHECK(why_unused("kept", b).ends_with("kept/b.jsonl is gone"));
  fs::copy_file(b, a, fs::copy_options::overwrite_existing);
  CHECK(why_unused("kept", reference) == "its tokens have changed");
  fs::remove(a);
  fs::remove(earlier);
  CHECK(why_unused("kept", reference).ends_with("is gone"));
  fs::remove("kept/mine.tok");
  CHECK(why_unused("kept", of_mine) == "kept/mine.tok is gone");
  CHECK(test::error_of([] { kept_files("kept/c.jsonl"); }) == "kept/c.jsonl: is not a folder");
}

TEST_CASE("a use is recorded, and files are kept only where a folder can be written") {
  fs::remove_all("kept_use");
  fs::create_directory("kept_use");
  write("kept_use/a.jsonl", "{\"text\":\"one text\"}\n");
  const std::string tokens = make_tokens("kept_use/a.jsonl");
  fs::last_write_time(tokens, fs::file_time_type::clock::now() - std::chrono::hours(100));
  const auto hours = [&] {
    return std::chrono::duration_cast<std::chrono::hours>(std::chrono::system_clock::now() -
                                                          kept_files("kept_use").at(0).last_use)
        .count();
  };
  CHECK(hours() >= 99);
  note_use(tokens);
  CHECK(hours() <= 1);
  note_use("kept_use/none");
  write("kept_use/b", "no folder");
  const std::string error = test::error_of([] { make_kept_folder("kept_use/b/.flatshard/c", "copy it"); });
  CHECK(test::missing_from(error, {"kept_use/b/.flatshard: cannot be written: ", ": copy it"}) == "");
}
