"""The parts of a measurement that do not depend on what is measured.

`recoup bench`, `bench/` and `tools/gpu_first_hour` are lists of cases that use them: `turns`
alternates runs, `processes` runs programs, `results` has the file of results, `tables` and
`pictures` show them. A process without a built recoup can import these modules.
"""
