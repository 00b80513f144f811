"""URLs of PostgreSQL, and what libpq is told; without libpq."""

import pytest

from kcl_mld.config.spark.needs import need_faults
from kcl_mld.config.spark.postgres import libpq_connection

URL = "jdbc:postgresql:"


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        (URL, {}, ("///", {})),
        (f"{URL}/", {}, ("///", {})),
        (f"{URL}d?ssl", {}, ("///d", {"sslmode": "verify-full"})),
        (f"{URL}d?ssl=false&user=", {}, ("///d", {})),
        (f"{URL}//[::1]:5432,h:%31,i:/d", {}, ("//[::1]:5432,h:%31,i:/d", {})),
        (f"{URL}d?user=u&port=1,", {"user": "o"}, ("///d", {"user": "o", "port": "1,"})),
        (f"{URL}d?connectTimeout=3", {"a": "b"}, ("///d", {"a": "b", "connect_timeout": "3"})),
        (f"{URL}d?targetServerType=ANY", {}, ("///d", {"target_session_attrs": "any"})),
        (
            f"{URL}d?currentSchema=s%20t",
            {"options": "-ca=b"},
            ("///d", {"options": "-ca=b -csearch_path=s\\ t"}),
        ),
    ],
)
def test_a_url_is_what_libpq_is_told(url, options, expected):
    assert libpq_connection(url, options) == expected


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("jdbc:mysql://h/d", {}, "spark.sink.url is of another database"),
        (f"{URL}//u:geheim@h/d", {}, "spark.sink.url has user and password"),
        (
            f"{URL}//h:geheim/d",
            {},
            "spark.sink.url has a parameter that can't be right, here or in spark.sink.options: the",
        ),
        (f"{URL}//h,[::1]:65536/d", {}, "the port must be a whole number from 1 to 65535"),
        (f"{URL}d?port=0", {}, "the port must be"),
        (f"{URL}d", {"connectTimeout": "10 "}, "connectTimeout must be a whole number"),
        (f"{URL}d", {"dbname": "e"}, "dbname is no parameter of this sink: the database stands"),
        (f"{URL}d?replication=geheim", {}, "replication is no parameter of this sink; take it"),
        (f"{URL}d?targetServerType=geheim", {}, "targetServerType must be one of primary"),
    ],
)
def test_what_cannot_be_right_is_known_without_a_connection(url, options, why):
    written = {f"spark.sink.options.{name}": text for name, text in options.items()}
    keys = {"spark.sink": "jdbc", "spark.sink.url": url, "spark.sink.table": "t"}
    (fault,) = need_faults(keys | written)
    assert why in str(fault)
    assert "geheim" not in str(fault)
