#pragma once
// What build this is: version, revision, and the libraries it was built with.

#include <string>
#include <vector>

namespace flatshard {

// The answer of a program to --version: "train (Flatshard) 0.1, revision 5a6d644", then one line per feature.
std::string version_text(const std::string& program);

// "0.1, revision 5a6d644"; without the revision if it is unknown.
std::string version_and_revision();

// "0.1".
std::string version_number();

// The date of the revision, "2026-01-31"; empty if it is unknown.
std::string revision_date();

// The programs that an installation contains.
std::vector<std::string> installed_programs();

}  // namespace flatshard
