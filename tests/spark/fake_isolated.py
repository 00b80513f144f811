"""An isolated child without Spark, on the fake host."""

from mld.spark.worker.isolated import main
from tests.spark.fake_host import FakeParts

if __name__ == "__main__":
    main(parts=FakeParts())
