// A page as a reader gets it: drawn by a real browser, without a network.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "cli_support.h"

namespace isobath::testing {

inline int64_t count_of(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) count++;
  return count;
}

// Empty where the page can be drawn here, else what is missing.
inline std::string missing_to_draw(const std::string& page) {
  if (page.find("window.vega =") == std::string::npos) return "no Vega here (libjs-vega)";
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (std::system((std::string("command -v ") + name + " >/dev/null 2>&1").c_str()) == 0) return "";
  return "no browser here";
}

// The document after its scripts ran; a test fails where the browser's console had something to say.
inline std::string drawn(const fs::path& page, const TempDir& work) {
  const std::string dom = (work / "dom").string(), log = (work / "log").string();
  const std::string command =
      "for b in chromium chromium-browser google-chrome; do command -v $b >/dev/null 2>&1 && break; done; "
      "timeout 120 $b --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir=" +
      (work / "profile").string() + " --host-resolver-rules='MAP * ~NOTFOUND' --virtual-time-budget=20000 " +
      "--enable-logging=stderr --dump-dom file://" + page.string() + " >" + dom + " 2>" + log;
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(log);
  const std::string said = read_file(log);
  EXPECT_EQ(said.find("CONSOLE"), std::string::npos) << said;
  return read_file(dom);
}

}  // namespace isobath::testing
