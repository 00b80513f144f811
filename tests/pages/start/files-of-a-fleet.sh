cp .venv/share/kcl-mld/sample_apps/hello_app.py app.py
sed 's/sample_apps.flights_app/app/' .venv/share/kcl-mld/properties/local.properties > app.properties
