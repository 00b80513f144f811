cp properties/local.properties app.properties
printf 'workerId = w1\nfailoverTimeMillis = 2000\n' >> app.properties
kcl-mld local --stream local-sample > aws.env &
until grep -qs NO_PROXY aws.env; do sleep 0.2; done
. ./aws.env
kcl-mld --http 127.0.0.1:18080 --properties app.properties 2> w1.log &
until grep -qs 'started child' w1.log; do sleep 0.2; done
