.venv/bin/kcl-mld local --stream local-sample > aws.env &
until grep -qs NO_PROXY aws.env; do sleep 0.2; done
. ./aws.env
