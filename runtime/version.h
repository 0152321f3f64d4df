#pragma once
// The version and revision of this build, and the libraries it was built with.

#include <string>
#include <vector>

namespace flatshard {

// The text that a program prints for --version: "train (Flatshard) 0.2, revision 5a6d644", then one line per
// feature.
std::string version_text(const std::string& program);

// The version and revision, such as "0.2, revision 5a6d644"; only the version if the revision is unknown.
std::string version_and_revision();

// The version, such as "0.2". CHANGELOG.md says when it changes.
std::string version_number();

// The date of the revision, "2026-01-31"; empty if it is unknown.
std::string revision_date();

// The programs that an installation contains.
std::vector<std::string> installed_programs();

}  // namespace flatshard
