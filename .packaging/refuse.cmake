# cpack reads this in a build folder that must not become a package.
message(FATAL_ERROR "This build is for one machine's processor (FLATSHARD_NATIVE) or for a sanitizer, so it must not become a "
  "package. Run: cmake --preset package && cmake --build --preset package && (cd build-package && cpack)")
