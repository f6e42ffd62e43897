"""Run ``snakemake --lint`` and fail on every complaint that is not excused below."""

import subprocess
import sys

# One environment serves all rules: the lock file, or environment.yml for conda. GPU nodes may differ by profile.
EXCUSED = {"Specify a conda environment or container for each rule.:"}


def main() -> int:
    """Print what is not excused; 1 if there is anything."""
    command = [sys.executable, "-m", "snakemake", "--lint"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = (done.stdout + done.stderr).splitlines()
    if not any("Lints for" in line or "Congratulations" in line for line in report):
        print(*report, sep="\n")  # it did not lint at all
        return 1
    where = ""
    complaints = []
    for line in report:
        if line.startswith("Lints for"):
            where = line.removeprefix("Lints for ").rstrip(":")
        elif line.startswith("    * ") and line[6:] not in EXCUSED:
            complaints.append(f"{where}: {line[6:]}")
    print("\n".join(complaints) or "snakemake --lint: nothing to complain about")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
