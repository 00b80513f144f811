"""Command lines of ``java``, as launchers build them and as people write them."""

import pytest

from kcl_mld.errors import ConfigError
from kcl_mld.ops.rules.java_command import (
    MAIN_CLASS,
    MAIN_CLASSES_1X,
    JavaAnswer,
    JavaLaunch,
    read_java_command,
)

FILES = {
    "options": "-Daws.region=eu-west-1 # of this host\n-cp '/with space:.'\n",
    "all": f"-cp /a {MAIN_CLASS} -p app.properties @rest",
    "nested": "-Xmx1g @options",
}


def read(path):
    if path not in FILES:
        raise ConfigError(f"could not open `{path}'")
    return FILES[path]


def launch(*words, **environ):
    return read_java_command(words, environ, read)


#: Launcher -> its words, class path and arguments.
LAUNCHERS = {
    "kclpy 3.2.0": (
        f"-cp /jars/a.jar:/app {MAIN_CLASS} --properties-file a.properties --log-configuration l.x",
        ("/jars/a.jar", "/app"),
        "--properties-file a.properties --log-configuration l.x",
    ),
    "npm aws-kcl 2.3.2": (
        f"-cp /jars/a.jar:/here:/app {MAIN_CLASS} --properties-file app/app.properties",
        ("/jars/a.jar", "/here", "/app"),
        "--properties-file app/app.properties",
    ),
    "aws-kclrb": (
        f"-classpath /s/jars/a.jar:/s {MAIN_CLASS} --properties-file sample.properties",
        ("/s/jars/a.jar", "/s"),
        "--properties-file sample.properties",
    ),
    ".NET": (
        f"-cp /jars/a.jar:/here {MAIN_CLASS} -p kcl.properties -l logback.xml",
        ("/jars/a.jar", "/here"),
        "-p kcl.properties -l logback.xml",
    ),
    "by hand": (f"--class-path=/a:: {MAIN_CLASS} app.properties", ("/a", "", ""), "app.properties"),
    "an option of its own": (f"-cp /a {MAIN_CLASS} --http :1 a", ("/a",), "--http :1 a"),
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_command_line_of_a_launcher_is_read(name):
    words, class_path, arguments = LAUNCHERS[name]
    assert launch(*words.split()) == JavaLaunch(
        main_class=MAIN_CLASS, class_path=class_path, arguments=tuple(arguments.split())
    )


@pytest.mark.parametrize("main_class", MAIN_CLASSES_1X)
def test_main_classes_of_1x_are_known(main_class):
    made = launch("-cp", "/a.jar:/app", main_class, "app.properties")
    assert (made.main_class, made.is_1x, made.arguments) == (main_class, True, ("app.properties",))


def test_a_main_class_may_have_slashes():
    assert launch(MAIN_CLASS.replace(".", "/"), "a").main_class == MAIN_CLASS


@pytest.mark.parametrize(
    "option",
    [
        *("-Xmx1g", "-Xms1g", "-XX:+UseG1GC", "-XshowSettings:all", "-server", "-ea", "-da:a..."),
        *("-esa", "-verbose:gc", "-showversion", "--enable-preview", "--illegal-access=deny"),
        *("-p /modules", "--module-path=/m", "--add-opens a/b=c", "--add-modules=a", "-splash:a"),
    ],
)
def test_options_that_need_a_jvm_are_ignored(option):
    assert launch(*option.split(), MAIN_CLASS, "a") == JavaLaunch(
        main_class=MAIN_CLASS, arguments=("a",)
    )


@pytest.mark.parametrize(
    ("words", "environ", "class_path"),
    [
        ("", {}, ("",)),
        ("", {"CLASSPATH": "/c:/d"}, ("/c", "/d")),
        ("-cp /a", {"CLASSPATH": "/c"}, ("/a",)),
        ("-cp /a -classpath /b", {}, ("/b",)),
        ("@options", {}, ("/with space", ".")),
        ("@nested --class-path /b", {}, ("/b",)),
    ],
)
def test_the_last_class_path_counts(words, environ, class_path):
    assert launch(*words.split(), MAIN_CLASS, "a", **environ).class_path == class_path


def test_a_file_may_have_the_main_class_and_what_follows_is_the_daemons():
    made = launch("@all", "more")
    assert made.class_path == ("/a",)
    assert made.arguments == ("-p", "app.properties", "@rest", "more")


def test_a_file_that_is_not_there_is_an_error():
    with pytest.raises(ConfigError, match="could not open `nowhere'"):
        launch("@nowhere")


@pytest.mark.parametrize(
    ("words", "environ", "region"),
    [
        ("-Daws.region=a", {}, "a"),
        ("-Daws.region=a -Daws.region=b", {}, "b"),
        ("", {"JAVA_TOOL_OPTIONS": "-Daws.region=a --add-modules=x"}, "a"),
        ("-Daws.region=b", {"JAVA_TOOL_OPTIONS": "-Daws.region=a"}, "b"),
        ("", {"JDK_JAVA_OPTIONS": "@options"}, "eu-west-1"),
        ("-Daws.region=b", {"JDK_JAVA_OPTIONS": "-Daws.region=a"}, "b"),
        ("-Daws.region=b", {"_JAVA_OPTIONS": "-Daws.region=c"}, "c"),
    ],
)
def test_properties_come_from_words_and_variables_in_javas_order(words, environ, region):
    made = launch(*words.split(), MAIN_CLASS, "a", **environ)
    assert made.variables == {"AWS_REGION": region}


def test_what_has_no_effect_is_noted_without_its_value():
    words = "-javaagent:/a.jar=key -javaagent:/b.jar -agentlib:jdwp=x -Dfile.encoding=UTF-8"
    assert launch(*words.split(), MAIN_CLASS, "a").notes == (
        "-javaagent has no effect: there is no JVM",
        "-agentlib has no effect: there is no JVM",
        "-Dfile.encoding has no effect: there is no JVM",
    )


def test_a_file_of_logback_is_passed_on():
    made = launch("-Dlogback.configurationFile=l.xml", MAIN_CLASS, "a")
    assert made.log_configuration == "l.xml"


@pytest.mark.parametrize(
    ("words", "is_help", "to_stdout"),
    [
        ("-version", False, False),
        ("-XshowSettings:properties -version", False, False),
        ("--version", False, True),
        ("-fullversion", False, False),
        ("-help", True, False),
        ("--help", True, True),
        (f"-version -foo {MAIN_CLASS}", False, False),
    ],
)
def test_questions_are_answered_where_java_answers(words, is_help, to_stdout):
    assert launch(*words.split()) == JavaAnswer(is_help=is_help, to_stdout=to_stdout)


@pytest.mark.parametrize(
    ("words", "environ", "text"),
    [
        ("", {}, "No main class"),
        ("-Xmx1g", {}, "No main class"),
        ("-cp", {}, "-cp requires a value"),
        ("-cp /a org.apache.spark.deploy.SparkSubmit x", {}, "not org.apache.spark.deploy"),
        ("@@a", {}, "is no Java"),
        ("-jar app.jar", {}, "-jar is not supported: name the class"),
        ("--module=a/b", {}, "--module is not supported"),
        ("-foo=s3cr3t", {}, "Unrecognized option: -foo=…"),
        ("-classpath=/a", {}, "Unrecognized option: -classpath=…"),
        ("--list-modules", {}, "Unrecognized option: --list-modules"),
        ("-XX:VMOptionsFile=f", {}, "-XX:VMOptionsFile=… is not read"),
        (f"-Dhttp.proxyHost=a {MAIN_CLASS} a", {}, "-Dhttp.proxyHost can't be translated"),
        (f"{MAIN_CLASS} a", {"JAVA_TOOL_OPTIONS": "-Daws.secretKey=b"}, "-Daws.secretKey can't"),
        (f"{MAIN_CLASS} a", {"JAVA_TOOL_OPTIONS": "-cp a"}, "-cp in JAVA_TOOL_OPTIONS"),
        (f"{MAIN_CLASS} a", {"_JAVA_OPTIONS": "-version"}, "-version in _JAVA_OPTIONS"),
        (f"{MAIN_CLASS} a", {"JDK_JAVA_OPTIONS": "-version"}, "no main class and no -version"),
        (f"{MAIN_CLASS} a", {"JDK_JAVA_OPTIONS": "a.B"}, "no main class and no -version"),
    ],
)
def test_anything_else_is_refused(words, environ, text):
    with pytest.raises(ConfigError) as refused:
        launch(*words.split(), **environ)
    assert text in str(refused.value)
    assert "s3cr3t" not in str(refused.value)
